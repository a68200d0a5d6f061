"""Sixteen processes reading one store: operations per second, beside diskcache.

Every process reads random keys of a shared folder for a second. Both sides of
trivet verify each hit; the whole engine also compares the key, judges, counts and decodes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import diskcache
from harness import alternate, arguments, child_environment, report, summary

from trivet.cache import Cache
from trivet.codecs import Bytes
from trivet.keys import Key

_KEYS = 2000
_VALUE = bytes(range(256)) * 4
_PROCESSES = 16

_TRIVET = """
import random, sys, time
from trivet.cache import Cache
from trivet.codecs import Bytes
from trivet.keys import Key
cache, codec = Cache.open(sys.argv[1], memory_bytes=0, strict=True), Bytes()
keys = [Key("bench/1", {"n": n}) for n in range(int(sys.argv[2]))]
look = lambda key: cache.get(key, codec).value
"""
_STORE = """
import random, sys, time
from trivet.entries import unseal
from trivet.keys import Key
from trivet.stores.host import HostStore
store = HostStore.open(sys.argv[1])
keys = [Key("bench/1", {"n": n}).digest for n in range(int(sys.argv[2]))]
look = lambda digest: unseal(store.read(digest)).payload
"""
_DISKCACHE = """
import random, sys, time
import diskcache
cache = diskcache.Cache(sys.argv[1])
keys = list(range(int(sys.argv[2])))
look = lambda key: cache[key]
"""
_LOOP = """
assert len(look(keys[0])) == 1024
print("ready", flush=True)
sys.stdin.readline()
order = random.Random(int(sys.argv[3])).choices(keys, k=5000)
done, end = 0, time.perf_counter() + 1.0
while time.perf_counter() < end:
    for key in order[:500]:
        look(key)
    done += 500
print(done, flush=True)
"""


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    try:
        _fill(folder)
        measured = alternate(
            {
                "trivet, whole engine": lambda: _race(_TRIVET + _LOOP, folder / "trivet"),
                "trivet, store and checksums": lambda: _race(_STORE + _LOOP, folder / "trivet"),
                "diskcache": lambda: _race(_DISKCACHE + _LOOP, folder / "peer"),
            },
            options.rounds,
        )
    finally:
        shutil.rmtree(folder)
    peer = summary(measured["diskcache"])["median"]
    rows: list[dict[str, object]] = []
    for name, values in measured.items():
        figures = summary(values)
        rows.append(
            {
                f"{_PROCESSES} processes reading": name,
                "hits per second": round(figures["median"]),
                "low": round(figures["low"]),
                "high": round(figures["high"]),
                "vs diskcache": figures["median"] / peer,
            }
        )
    report("host_store_processes", rows, options.json)


def _fill(folder: Path) -> None:
    peer = diskcache.Cache(str(folder / "peer"))
    with Cache.open(folder / "trivet", strict=True) as cache:
        for n in range(_KEYS):
            cache.get_or_compute(Key("bench/1", {"n": n}), lambda: _VALUE, Bytes())
            peer[n] = _VALUE
    peer.close()


def _race(code: str, folder: Path) -> float:
    """Total hits per second of all processes together."""
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder), str(_KEYS), str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=child_environment(),
        )
        for n in range(_PROCESSES)
    ]
    for each in racing:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in racing:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    return float(sum(int(each.communicate()[0]) for each in racing))


if __name__ == "__main__":
    main()
