"""Process start to first result, whole process: trivet beside the best script for each backend.

The peers: for ONNX Runtime a script that loads a saved optimised model with external initialisers
(with and without pre-packed weights) that it trusts blindly; for OpenVINO its own cache, keyed by
path and time. Trivet identifies the model, finds the plan and verifies every byte of it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import sides
from harness import alternate, arguments, report, run, summary


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    rows: list[dict[str, object]] = []
    try:
        for model, path in sides.build_models(folder).items():
            for backend, programs in _programs(folder, model, path).items():
                measured = alternate(programs, options.rounds)
                figures = {name: summary(values) for name, values in measured.items()}
                best = min(each["median"] for name, each in figures.items() if "saved" in name)
                for name, each in figures.items():
                    rows.append(
                        {
                            "model": model,
                            "backend": backend,
                            "program": name,
                            "seconds": each["median"],
                            "low": each["low"],
                            "high": each["high"],
                            "vs best script": each["median"] / best,
                        }
                    )
    finally:
        shutil.rmtree(folder)
    report("process_start", rows, options.json)


def _programs(folder: Path, model: str, path: Path) -> dict[str, dict[str, Callable[[], float]]]:
    plain_dir, packed_dir = folder / f"{model}-saved", folder / f"{model}-packed"
    native_dir = folder / f"{model}-native"
    for each in (plain_dir, packed_dir, native_dir):
        each.mkdir()
    run(sides.ORT_SAVE, path, plain_dir, "0")
    run(sides.ORT_SAVE, path, packed_dir, "1")
    cache = folder / "cache"

    def timed(code: str, *args: object) -> Callable[[], float]:
        _, expected = run(code, *args)

        def measure() -> float:
            seconds, printed = run(code, *args)
            assert _result(printed) == _result(expected), f"{printed} is not {expected}"
            return seconds

        return measure

    return {
        "onnxruntime": {
            "plain session": timed(sides.ORT_PLAIN, path),
            "saved model, mapped": timed(sides.ORT_SAVED, path, plain_dir),
            "saved model, mapped, pre-packed": timed(sides.ORT_SAVED, path, packed_dir),
            "trivet, verified": timed(sides.TRIVET, path, cache, "onnxruntime", ""),
        },
        "openvino": {
            "plain compile": timed(sides.OPENVINO_PLAIN, path),
            "its own cache (saved by path)": timed(sides.OPENVINO_CACHED, path, native_dir),
            "trivet, verified": timed(sides.TRIVET, path, cache, "openvino", ""),
        },
    }


def _result(printed: str) -> list[str]:
    return printed.split()[1:]


if __name__ == "__main__":
    main()
