"""``python -m examples.demo``: the comparison, start to finish, in a few minutes."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from examples.demo import acts
from examples.demo.jobs import JOBS, OCR, build
from examples.demo.report import table
from examples.demo.ways import WAYS
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def main() -> int:
    """Run all acts; 0 when Trivet never served a wrong thing and compiled once."""
    options = _options()
    console = Console(stderr=options.json == "-")
    caching = sum(way.caches for way in WAYS.values())
    per_job = len(WAYS) * (1 + options.repeats) + len(WAYS) + 2 * caching
    results: dict[str, Any] = {"machine": _machine(), "processes": options.processes, "jobs": {}}
    options.folder.mkdir(parents=True, exist_ok=True)
    columns = (
        BarColumn(),
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
    for name, rows in results["jobs"].items():
        console.print(table(JOBS[name].title, rows, options.processes))
    _say(console, results)
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
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _say(console: Console, results: dict[str, Any]) -> None:
    facts = results["machine"]
    console.print(
        f"[dim]Process start to first answer over HTTP; warm: median of new processes; weights "
        f"swapped under the same size and mtime; bits flipped in what was stored. "
        f"{facts['cpus']} CPUs, ONNX Runtime {facts['onnxruntime']}, "
        f"OpenVINO {facts['openvino']}, Trivet {facts['trivet']}.[/]"
    )
    for way, row in results["jobs"].get(OCR.name, {}).items():
        if row.get("swap") == "old answer":
            console.print(
                f"[dim]{WAYS[way].backend}, {WAYS[way].title}: after the swap it still read "
                f"“{row['swap_answer']}”; the file on disk can't.[/]"
            )


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
    raise SystemExit(main())
