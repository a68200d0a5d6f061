"""The table at the end."""

from __future__ import annotations

from examples.demo.acts import FLIPS, Row
from examples.demo.ways import WAYS
from rich.table import Table

_BAD = "[bold red]{}[/]"
_GOOD = "[green]{}[/]"


def table(title: str, rows: dict[str, Row], count: int) -> Table:
    """One table for one model; figures are those of this run."""
    view = Table(title=title, title_justify="left", header_style="bold")
    view.add_column("")
    view.add_column("cold start", justify="right")
    view.add_column("warm start", justify="right")
    view.add_column("weights swapped,\nsame mtime")
    view.add_column(f"{FLIPS} bits of stored\nweights flipped")
    view.add_column(f"{count} started at once")
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
        view.add_row(name, *cells, _swap(row), _flip(row), _storm(row))
    return view


def _swap(row: Row) -> str:
    verdict = row["swap"]
    return _GOOD.format("new answer") if verdict == "right" else _BAD.format(verdict)


def _flip(row: Row) -> str:
    verdict = row.get("flip")
    if verdict is None:
        return "-"
    return _GOOD.format(verdict) if verdict == "recompiled" else _BAD.format(verdict)


def _storm(row: Row) -> str:
    if "storm_s" not in row:
        return "-"
    compiles, died, wrong = row["storm_compiles"], row["storm_died"], row["storm_wrong"]
    noun = "compile" if compiles == 1 else "compiles"
    text = f"{compiles} {noun}, {row['storm_s']:.1f} s"
    if died:
        text += f", {len(died)} died"
    if wrong:
        text += f", {wrong} wrong"
    return (_GOOD if compiles == 1 and not died and not wrong else _BAD).format(text)
