"""A memoised function whose result depends on a ResNet-50, called again: beside joblib.

Trivet asks at every call whether anything in the module has changed, joblib hashes it. functools
goes by identity, and diskcache would keep all weights in each key, so neither is a side.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import joblib
from harness import alternate, arguments, report, summary
from torch_models import ResNet50

from trivet import Cache
from trivet.values import memo

_CALLS = 200
_CALLS_OF_PEER = 2


def _compute(x: int) -> list[float]:
    return [float(x)]


def _with_model(model: object, x: int) -> list[float]:
    return _compute(x)


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    try:
        model = ResNet50().eval()
        ours = memo(Cache.open(folder / "trivet", strict=True), depends=[model])(_compute)
        peer = joblib.Memory(folder / "joblib", verbose=0).cache(_with_model)
        assert ours(5) == peer(model, 5) == [5.0]
        sides: dict[str, Callable[[], float]] = {
            "trivet, memory": lambda: timeit.timeit(lambda: ours(5), number=_CALLS) / _CALLS,
            "joblib.Memory": lambda: (
                timeit.timeit(lambda: peer(model, 5), number=_CALLS_OF_PEER) / _CALLS_OF_PEER
            ),
        }
        measured = {
            name: summary([each * 1e3 for each in values])
            for name, values in alternate(sides, options.rounds).items()
        }
    finally:
        shutil.rmtree(folder)
    least = measured["trivet, memory"]["median"]
    rows: list[dict[str, object]] = [
        {
            "hit": name,
            "ms": figures["median"],
            "low": figures["low"],
            "high": figures["high"],
            "vs trivet": figures["median"] / least,
        }
        for name, figures in measured.items()
    ]
    report("memo_module", rows, options.json)


if __name__ == "__main__":
    main()
