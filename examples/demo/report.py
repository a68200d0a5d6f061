"""What is shown at the end: a table for each model, and how to read them."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.demo.acts import FLIPS, Row
from examples.demo.jobs import JOBS, OCR
from examples.demo.ways import WAYS
from rich import box
from rich.console import Console
from rich.table import Table

_BAD = "[bold red]{}[/]"
_GOOD = "[green]{}[/]"


def show(console: Console, results: Mapping[str, Any]) -> None:
    """Print the tables of all jobs, and how the figures were made."""
    for name, rows in results["jobs"].items():
        console.print(table(JOBS[name].title, rows, results["processes"]))
    facts = results["machine"]
    console.print(
        f"[dim]Start: from the start of a process to its first answer over HTTP; warm: the "
        f"median of {results['repeats']}. Weights swapped: other weights, same size and "
        f"modification time. Bits flipped: in what was stored. {facts['cpus']} CPUs "
        f"({facts['processor']}), ONNX Runtime {facts['onnxruntime']}, OpenVINO "
        f"{facts['openvino']}, Trivet {facts['trivet']}.[/]"
    )
    fooled = [
        (f"{WAYS[way].backend}, {WAYS[way].title}", row["swap_answer"])
        for way, row in results["jobs"].get(OCR.name, {}).items()
        if row.get("swap") == "old answer"
    ]
    for who, text in fooled:
        console.print(f"[dim]{who}: still reads “{text}” with weights that can't read it.[/]")


def save_picture(path: Path, results: Mapping[str, Any]) -> None:
    """Write what `show` prints as an SVG, as a terminal of 80 columns shows it."""
    console = Console(
        record=True, width=80, highlight=False, file=io.StringIO(), force_terminal=True
    )
    show(console, results)
    picture = console.export_svg(title="make demo")
    # Pictures that load fonts from elsewhere are blocked or call home; any monospace will do.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(re.sub(r"[ \t]+$", "", picture, flags=re.MULTILINE))


def table(title: str, rows: dict[str, Row], count: int) -> Table:
    """One table for one model; figures are those of this run."""
    # Fits 80 columns, the width of a terminal that says nothing about itself.
    view = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    view.add_column("", no_wrap=True)
    view.add_column("cold\nstart", justify="right", no_wrap=True)
    view.add_column("warm\nstart", justify="right", no_wrap=True)
    view.add_column("weights\nswapped", min_width=10)
    view.add_column(f"{FLIPS} bits\nflipped")
    view.add_column(f"compiles\nof {count}", justify="right")
    view.add_column(f"{count} at\nonce", justify="right", no_wrap=True)
    backend = ""
    for way, row in rows.items():
        kind = WAYS[way]
        if kind.backend != backend:
            if backend:
                view.add_section()
            backend = kind.backend
            view.add_row(f"[bold]{backend}[/]")
        name = f"  [bold cyan]{kind.title}[/]" if kind.title == "Trivet" else f"  {kind.title}"
        cells = [f"{row[each]:.2f} s" for each in ("cold_s", "warm_s")]
        view.add_row(name, *cells, _swap(row), _flip(row), *_storm(row))
    return view


def _swap(row: Row) -> str:
    verdict = row["swap"]
    return _GOOD.format("new answer") if verdict == "right" else _BAD.format(verdict)


def _flip(row: Row) -> str:
    verdict = row.get("flip")
    if verdict is None:
        return "-"
    if verdict == "recompiled":
        return _GOOD.format("right")
    return _BAD.format({"wrong answer": "wrong", "not noticed": "unnoticed"}.get(verdict, verdict))


def _storm(row: Row) -> tuple[str, str]:
    if "storm_s" not in row:
        return "-", "-"
    compiles, died, wrong = row["storm_compiles"], row["storm_died"], row["storm_wrong"]
    text = str(compiles)
    if died:
        text += f", {len(died)} died"
    if wrong:
        text += f", {wrong} wrong"
    mark = _GOOD if text == "1" else _BAD
    return mark.format(text), f"{row['storm_s']:.1f} s"
