"""Output on a terminal, by Rich."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from trivet.cli.output import Column, Span, Step, Styled, as_text


def print_line(stream: TextIO, text: Styled) -> None:
    """Print a line, wrapped between words."""
    _console(stream).print(_rich(text))


def print_items(rows: Sequence[tuple[Styled, Styled]]) -> None:
    """Print two columns; lines of the second are indented alike."""
    console = _console(sys.stdout)
    grid = Table.grid(padding=(0, 2), pad_edge=False)
    grid.add_column(max_width=console.width * 2 // 5, overflow="fold")
    grid.add_column(overflow="fold")
    for name, text in rows:
        grid.add_row(_rich(name), _rich(text))
    console.print(grid)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Styled]]) -> None:
    """Print a table that fits the terminal."""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for index, each in enumerate(columns):
        longest = max((len(as_text(row[index])) for row in rows), default=0)
        table.add_column(
            each.name,
            justify="right" if each.right else "left",
            style=each.style,
            no_wrap=not each.fold,
            min_width=None if each.fold else max(longest, len(each.name)),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(_rich, row))
    _console(sys.stdout).print(table)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Step]:
    """A bar that vanishes when it is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_console(sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def step(done: float, total: float, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield step


def _console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, emoji=False, markup=False)


def _rich(text: Styled) -> Text:
    if isinstance(text, Span):
        return Text(text.text, style=text.style)
    return Text(text) if isinstance(text, str) else Text.assemble(*text)
