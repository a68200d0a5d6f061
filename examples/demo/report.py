"""The table at the end."""

from __future__ import annotations

from examples.demo.acts import FLIPS, Row
from examples.demo.ways import WAYS
from rich import box
from rich.table import Table

_BAD = "[bold red]{}[/]"
_GOOD = "[green]{}[/]"


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
