"""ONNX Runtime: how soon a session is ready in a new process, and whether it then runs as fast.

``after import`` is the time of the load alone, with the framework imported before; the plan's files
are verified in that time. ``beyond import`` is process start to ready less the time of a process
that only imports the framework: trivet verifies while the framework imports, which a load after the
import can't. Throughput is of one process with both sessions, alternating.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import sides
from harness import alternate, arguments, report, run, summary

from trivet import Cache
from trivet.plans import Plans
from trivet.plans.backends import OnnxRuntime

_READY_ONLY = (
    "import os\n_print = print\ndef print(*a):\n    _print(*a, flush=True)\n    os._exit(0)\n"
)


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    rows: list[dict[str, object]] = []
    try:
        for model, path in sides.build_models(folder).items():
            run(sides.TRIVET, path, folder / "cache", "onnxruntime", "")
            rows += _ready(model, path, folder / "cache", options.rounds)
            rows.append(_throughput(model, path, folder / "cache", options.rounds))
    finally:
        shutil.rmtree(folder)
    report("session_ready", rows, options.json)


def _ready(model: str, path: Path, cache: Path, rounds: int) -> list[dict[str, object]]:
    def after_import(code: str, *args: object) -> Callable[[], float]:
        return lambda: float(run(code, *args)[1].split()[0])

    def whole(code: str, *args: object) -> Callable[[], float]:
        ready = code.replace("\ndone(ready,", "\nprint(ready); done(ready,")
        return lambda: run(_READY_ONLY + ready, *args)[0] * 1e3

    measured = alternate(
        {
            "plain": after_import(sides.ORT_PLAIN, path),
            "trivet": after_import(sides.TRIVET, path, cache, "onnxruntime", "import first"),
            "import, process": lambda: run(sides.IMPORT_ONLY["onnxruntime"])[0] * 1e3,
            "plain, process": whole(sides.ORT_PLAIN, path),
            "trivet, process": whole(sides.TRIVET, path, cache, "onnxruntime", ""),
        },
        rounds,
    )
    medians = {name: summary(values)["median"] for name, values in measured.items()}
    start = medians["import, process"]
    return [
        _row(model, "session ready after import, ms", medians["plain"], medians["trivet"]),
        _row(
            model,
            "session ready beyond import, ms",
            medians["plain, process"] - start,
            medians["trivet, process"] - start,
        ),
    ]


def _throughput(model: str, path: Path, cache: Path, rounds: int) -> dict[str, object]:
    import onnxruntime

    plain = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    plan = Plans(Cache.open(cache, strict=True), OnnxRuntime()).load(path)
    scope: dict[str, object] = {}
    exec(sides.INPUTS, scope)
    feed = scope["inputs"]({each.name for each in plan.inputs})  # type: ignore[operator]

    def per_run(call: Callable[[], object]) -> Callable[[], float]:
        def measure() -> float:
            call()
            start = time.perf_counter()
            for _ in range(5):
                call()
            return (time.perf_counter() - start) / 5 * 1e3

        return measure

    ours, theirs = plan.run(feed), plain.run(None, feed)
    np.testing.assert_allclose(next(iter(ours.values())), theirs[0], rtol=1e-3, atol=1e-4)
    measured = alternate(
        {
            "plain": per_run(lambda: plain.run(None, feed)),
            "trivet": per_run(lambda: plan.run(feed)),
        },
        rounds * 2,
    )
    medians = {name: summary(values)["median"] for name, values in measured.items()}
    return _row(model, "one run, steady, ms", medians["plain"], medians["trivet"])


def _row(model: str, what: str, plain: float, trivet: float) -> dict[str, object]:
    return {
        "model": model,
        "what": what,
        "plain": plain,
        "trivet, verified": trivet,
        "times faster": plain / trivet,
    }


if __name__ == "__main__":
    sys.exit(main())
