"""A memoised function with small arguments, called again: beside functools, joblib and diskcache.

functools keeps nothing over a restart and looks at no code; joblib and diskcache read the disk at
every call. Trivet looks in memory, and asks at every call whether the function, its helper and
its constant are what they were.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import diskcache
import joblib
from harness import alternate, arguments, report, summary

from trivet import Cache
from trivet.values import memo

_CALLS = 2000
_FACTOR = 3


def _helper(x: int) -> int:
    return x + 1


def _compute(x: int, text: str) -> list[float]:
    return [float(_helper(x) * _FACTOR), float(len(text))]


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    try:
        measured = alternate(_sides(folder), options.rounds)
    finally:
        shutil.rmtree(folder)
    ours = summary(measured["trivet, memory"])["median"]
    rows: list[dict[str, object]] = [
        {
            "hit": name,
            "us": figures["median"],
            "low": figures["low"],
            "high": figures["high"],
            "vs trivet, memory": figures["median"] / ours,
        }
        for name, figures in ((name, summary(values)) for name, values in measured.items())
    ]
    report("memo_hits", rows, options.json)


def _sides(folder: Path) -> dict[str, Callable[[], float]]:
    live = memo(Cache.open(folder / "live", strict=True))(_compute)
    host = memo(Cache.open(folder / "host", memory_bytes=0, strict=True))(_compute)
    peer = joblib.Memory(folder / "joblib", verbose=0)

    def per_hit(function: Callable[[int, str], object]) -> Callable[[], float]:
        assert function(5, "text") == [18.0, 4.0]

        def measure() -> float:
            return timeit.timeit(lambda: function(5, "text"), number=_CALLS) / _CALLS * 1e6

        return measure

    return {
        "functools.lru_cache": per_hit(functools.lru_cache(_compute)),
        "trivet, memory": per_hit(live),
        "trivet, host store, verified": per_hit(host),
        "joblib.Memory": per_hit(peer.cache(_compute)),
        "diskcache.memoize": per_hit(diskcache.Cache(str(folder / "peer")).memoize()(_compute)),
    }


if __name__ == "__main__":
    main()
