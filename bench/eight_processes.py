"""Eight processes start at once on an empty cache: how often is the model compiled, how long does
it take, beside one process alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sides
from harness import arguments, child_environment, report, summary

from trivet.plans.activity import Activity

_PROCESSES = 8


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    rows: list[dict[str, object]] = []
    try:
        model = sides.build_models(folder)["ResNet-50"]
        for backend in ("onnxruntime", "openvino"):
            alone, together, compiles = [], [], []
            for n in range(options.rounds):
                alone.append(_race(1, model, folder / f"{backend}-1-{n}", backend)[0])
                seconds, compiled = _race(_PROCESSES, model, folder / f"{backend}-8-{n}", backend)
                together.append(seconds)
                compiles.append(compiled)
            rows.append(
                {
                    "backend": backend,
                    "one process, s": summary(alone)["median"],
                    "eight processes, s": summary(together)["median"],
                    "ratio": summary(together)["median"] / summary(alone)["median"],
                    "compiles": max(compiles),
                }
            )
    finally:
        shutil.rmtree(folder)
    report("eight_processes", rows, options.json)


def _race(count: int, model: Path, cache: Path, backend: str) -> tuple[float, int]:
    """Seconds until the last process has its first result, and how many compiled."""
    start = time.perf_counter()
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", sides.TRIVET, str(model), str(cache), backend, ""],
            stdout=subprocess.PIPE,
            text=True,
            env=child_environment(),
        )
        for _ in range(count)
    ]
    results = {each.communicate()[0].split(maxsplit=1)[1] for each in racing}
    seconds = time.perf_counter() - start
    assert all(each.returncode == 0 for each in racing)
    assert len(results) == 1
    return seconds, sum(each.source == "compiled" for each in Activity(cache))


if __name__ == "__main__":
    main()
