"""``python -m examples.demo``: the comparison, start to finish, in a few minutes."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from examples.demo import acts
from examples.demo.jobs import JOBS, build
from examples.demo.report import save_picture, show
from examples.demo.ways import WAYS
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def main() -> int:
    """Run all acts; 0 when Trivet never served a wrong thing and compiled once."""
    options = _options()
    console = Console(stderr=options.json == "-", highlight=False)
    caching = sum(way.caches for way in WAYS.values())
    per_job = len(WAYS) * (1 + options.repeats) + len(WAYS) + 2 * caching
    results: dict[str, Any] = {
        "machine": _machine(),
        "processes": options.processes,
        "repeats": options.repeats,
        "jobs": {},
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    starts = (per_job + caching * options.processes) * len(options.jobs)
    console.print(
        f"Serving {len(options.jobs)} models in {len(WAYS)} ways, each in a new process: about "
        f"{starts} starts, some minutes."
    )
    columns = (
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("building the models", total=per_job * len(options.jobs))

        def tick(text: str) -> None:
            progress.update(task, advance=1, description=text)

        for name in options.jobs:
            results["jobs"][name] = _one_job(name, options, tick)
    show(console, results)
    if options.svg:
        save_picture(options.svg, results)
    if options.json:
        text = json.dumps(results, indent=2)
        print(text) if options.json == "-" else Path(options.json).write_text(text + "\n")
    return 0 if _trivet_is_right(results) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="where models are kept")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--repeats", type=int, default=3, help="warm starts; the median counts")
    parser.add_argument("--processes", type=int, default=8, help="how many start at once")
    parser.add_argument("--json", metavar="FILE", help="write all figures; - for standard output")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the tables as a picture")
    return parser.parse_args()


def _one_job(name: str, options: argparse.Namespace, tick: acts.Tick) -> dict[str, acts.Row]:
    original = build(JOBS[name], options.folder / "models")
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=options.folder))
    try:
        stage = acts.Stage(JOBS[name], original, folder)
        acts.starts(stage, options.repeats, tick)
        acts.swap(stage, tick)
        acts.flip(stage, tick)
        acts.eight(stage, options.processes, tick)
        return stage.rows
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _machine() -> dict[str, Any]:
    packages = ("trivet", "onnxruntime", "openvino", "numpy")
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "processor": _processor(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _trivet_is_right(results: dict[str, Any]) -> bool:
    rows = [
        row
        for job in results["jobs"].values()
        for way, row in job.items()
        if way.endswith("-trivet")
    ]
    return all(
        row["swap"] == "right"
        and row["flip"] == "recompiled"
        and row["storm_compiles"] == 1
        and not row["storm_died"]
        and not row["storm_wrong"]
        for row in rows
    )


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
