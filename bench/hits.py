"""A hit of 1 KiB: in memory, and in the host store with every check, beside diskcache.

The host-store side opens the cache without a memory tier, so that each hit reads, compares the key,
verifies the checksums and decodes. diskcache pickles and verifies nothing.
"""

from __future__ import annotations

import shutil
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import diskcache
from harness import alternate, arguments, report, summary

from trivet.cache import Cache, Hit
from trivet.codecs import Bytes
from trivet.keys import Key

_KEYS = 1000
_CALLS = 20_000
_VALUE = bytes(range(256)) * 4


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    try:
        measured = alternate(_sides(folder), options.rounds)
    finally:
        shutil.rmtree(folder)
    peer = summary(measured["diskcache"])["median"]
    rows: list[dict[str, object]] = [
        {
            "hit of 1 KiB": name,
            "us": figures["median"],
            **_spread(figures),
            "vs diskcache": peer / figures["median"],
        }
        for name, figures in ((name, summary(values)) for name, values in measured.items())
    ]
    report("hits", rows, options.json)


def _spread(figures: dict[str, float]) -> dict[str, float]:
    return {"low": figures["low"], "high": figures["high"]}


def _sides(folder: Path) -> dict[str, Callable[[], float]]:
    codec = Bytes()
    keys = [Key("bench/1", {"n": n}) for n in range(_KEYS)]
    live = Cache.open(folder / "live", strict=True)
    host = Cache.open(folder / "host", memory_bytes=0, strict=True)
    peer = diskcache.Cache(str(folder / "peer"))
    for each in keys:
        live.get_or_compute(each, lambda: _VALUE, codec)
        host.get_or_compute(each, lambda: _VALUE, codec)
        peer[each.digest] = _VALUE
    assert isinstance(host.get(keys[0], codec), Hit)
    assert peer[keys[0].digest] == _VALUE

    def per_hit(look: Callable[[Key], object]) -> Callable[[], float]:
        def measure() -> float:
            rounds = _CALLS // _KEYS
            return (
                timeit.timeit(lambda: [look(each) for each in keys], number=rounds) / _CALLS * 1e6
            )

        return measure

    return {
        "trivet, memory": per_hit(lambda key: live.get(key, codec)),
        "trivet, host store, verified": per_hit(lambda key: host.get(key, codec)),
        "diskcache": per_hit(lambda key: peer[key.digest]),
    }


if __name__ == "__main__":
    main()
