"""Eight processes start at once on an empty cache: how often is the model compiled, how long does
it take, beside one process alone, beside the CPU time that they need, spread over all cores, and
beside eight for which everything is stored already.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

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
            alone, together, least, stored, compiles = [], [], [], [], []
            for n in range(options.rounds):
                alone.append(_race(1, model, folder / f"{backend}-1-{n}", backend).seconds)
                empty = _race(_PROCESSES, model, folder / f"{backend}-8-{n}", backend)
                full = _race(_PROCESSES, model, folder / f"{backend}-8-{n}", backend)
                together.append(empty.seconds)
                least.append(empty.cpu_seconds / (os.cpu_count() or 1))
                stored.append(full.seconds)
                compiles.append(full.compiled)
            rows.append(
                {
                    "backend": backend,
                    "one process, s": summary(alone)["median"],
                    "eight processes, s": summary(together)["median"],
                    "ratio": summary(together)["median"] / summary(alone)["median"],
                    "their CPU time / cores, s": summary(least)["median"],
                    "eight, all stored, s": summary(stored)["median"],
                    "compiles": max(compiles),
                }
            )
    finally:
        shutil.rmtree(folder)
    report("eight_processes", rows, options.json)


class _Race(NamedTuple):
    """Until the last process has its first result and ended.

    ``compiled`` counts over all races in the same cache.
    """

    seconds: float
    cpu_seconds: float
    compiled: int


def _race(count: int, model: Path, cache: Path, backend: str) -> _Race:
    before, start = _cpu_seconds(), time.perf_counter()
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
    compiled = sum(each.source == "compiled" for each in Activity(cache))
    return _Race(seconds, _cpu_seconds() - before, compiled)


def _cpu_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
