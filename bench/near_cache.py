"""The near cache over a Cluster of six servers on this machine: hits, and when a change is seen.

Look-ups of 1 KiB, of which 98 % are of values that this process has and 2 % of values that it must
fetch, beside the plain client that asks the Cluster every time and verifies nothing. Changes are
made by another process; they are counted from when its call returned until a look-up began that
saw them, and until that look-up returned with the new value. Between look-ups the process rests
for 50 us, as one does that serves requests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from harness import alternate, arguments, child_environment, report, summary
from tests.support.engine import eventually
from tests.support.hosts import BYTES, Host
from tests.support.servers import ValkeyCluster

from trivet.cache import Cache, Hit
from trivet.cache.shared import Shared
from trivet.entries import Descriptor, seal
from trivet.keys import Key
from trivet.stores.shared import ValkeyStore
from trivet.stores.shared.names import entry_name

_HOT = 1000
_LOOKS = 5000
_COLD_SHARE = 50  # one of so many is not here
_CHANGES = 300
_REST = 50e-6
_VALUE = bytes(range(256)) * 4

_WRITER = """
import sys, time
from pathlib import Path
from tests.support.hosts import Host
from trivet.keys import Key
host = Host(Path(sys.argv[1]), None, sys.argv[2])
key = Key("bench/1", {"changed": True})
host.value(lambda: b"0", name=Key("bench/1", {"tagged": True}), tags=("t",))
host.rewrite(b"0", name=key)
host.wait_until_told()
print("ready", flush=True)
for line in sys.stdin:
    if line == "invalidate\\n":
        host.cache.invalidate("t")
    else:
        host.rewrite(line.strip().encode(), name=key)
    print(time.monotonic(), flush=True)
host.close()
"""


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    (folder / "cluster").mkdir()
    cluster = ValkeyCluster(folder / "cluster")
    try:
        cluster.start()
        rows = _look_ups(folder, cluster.url, options.rounds)
        rows += _changes(folder, cluster.url)
    finally:
        cluster.kill()
        shutil.rmtree(folder)
    report("near_cache", rows, options.json)


def _look_ups(folder: Path, url: str, rounds: int) -> list[dict[str, object]]:
    store = ValkeyStore(url)
    near = Cache(shared=Shared(None, ValkeyStore(url)))
    full = Cache.open(folder / "full", shared=url)
    hot = [_stored(store, Key("bench/1", {"n": n})) for n in range(_HOT)]
    for cache in (near, full):
        cache.get(hot[0], BYTES)
        shared = cache.engine.tiers.shared
        assert shared is not None
        assert shared.near is not None
        eventually(shared.near.is_told, "pushes")
        assert all(isinstance(cache.get(each, BYTES), Hit) for each in hot)
    numbers = iter(range(_HOT, 10**9))

    def mixed(look: Callable[[Key], object]) -> Callable[[], float]:
        def measure() -> float:
            cold = [
                _stored(store, Key("bench/1", {"n": n}))
                for n in islice(numbers, _LOOKS // _COLD_SHARE)
            ]
            keys = list(_interleaved(hot, cold))
            return _per_look(look, keys)

        return measure

    client = store.client
    sides = {
        "plain client, every look-up": mixed(lambda key: client.get(entry_name(key.digest))),
        "near cache, 98 % of hits": mixed(lambda key: near.get(key, BYTES)),
        "near cache and folder, 98 % of hits": mixed(lambda key: full.get(key, BYTES)),
        "near cache, hit": lambda: _per_look(lambda key: near.get(key, BYTES), hot * 5),
    }
    measured = alternate(sides, rounds)
    for each in (near, full, store):
        each.close()
    plain = summary(measured["plain client, every look-up"])["median"]
    return [
        {
            "what": name,
            "us": figures["median"],
            "low": figures["low"],
            "high": figures["high"],
            "plain client / this": plain / figures["median"],
        }
        for name, figures in ((name, summary(values)) for name, values in measured.items())
    ]


def _stored(store: ValkeyStore, key: Key) -> Key:
    descriptor = Descriptor(codec=BYTES.id, created=time.time(), cost=0.01, size=len(_VALUE))
    store.write(key.digest, seal(key.canonical, descriptor, _VALUE))
    return key


def _interleaved(hot: list[Key], cold: list[Key]) -> Iterator[Key]:
    for n in range(_LOOKS):
        yield cold[n // _COLD_SHARE] if n % _COLD_SHARE == 0 else hot[n % len(hot)]


def _per_look(look: Callable[[Key], object], keys: list[Key]) -> float:
    assert look(keys[1]) is not None
    return timeit.timeit(lambda: [look(each) for each in keys], number=1) / len(keys) * 1e6


def _changes(folder: Path, url: str) -> list[dict[str, object]]:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder / "writer"), url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    host = Host(folder / "reader", None, url)
    host.wait_until_told()
    changed, tagged = (Key("bench/1", {name: True}) for name in ("changed", "tagged"))
    began, ended, invalid = list[float](), list[float](), list[float]()
    for n in range(_CHANGES):
        host.look(changed)
        writer.stdin.write(f"{n}\n")
        writer.stdin.flush()
        first, last = _until(lambda n=n: host.look(changed)[0] == b"%d" % n)  # type: ignore[misc,index]
        written = float(writer.stdout.readline())
        if n:  # the first value is what was there
            began.append(max(0.0, first - written) * 1e6)
            ended.append(max(0.0, last - written) * 1e6)
        host.value(lambda: b"x", name=tagged, tags=("t",))
        host.look(tagged)
        writer.stdin.write("invalidate\n")
        writer.stdin.flush()
        first, _ = _until(lambda: host.look(tagged) is None)
        invalid.append(max(0.0, first - float(writer.stdout.readline())) * 1e6)
    writer.stdin.close()
    writer.wait()
    host.close()
    rows = {
        "change pushed, until a look-up began that saw it": began,
        "the same, until it returned the new value": ended,
        "tag invalidated, until a look-up began that saw it": invalid,
    }
    return [
        {
            "what": name,
            "us": summary(values)["median"],
            "low": summary(values)["low"],
            "high": summary(values)["high"],
            "p99": sorted(values)[len(values) * 99 // 100],
        }
        for name, values in rows.items()
    ]


def _until(seen: Callable[[], bool]) -> tuple[float, float]:
    """When the look-up began that saw it, and when it returned."""
    while True:
        first = time.monotonic()
        if seen():
            return first, time.monotonic()
        time.sleep(_REST)


if __name__ == "__main__":
    main()
