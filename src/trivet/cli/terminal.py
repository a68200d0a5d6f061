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

_GAP = 2
_LONGEST_WORD = 16


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
    console = _console(sys.stdout)
    shown = _fitting(columns, rows, console.width)
    widths = _widths(columns, rows, shown, console.width)
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for index in shown:
        each = columns[index]
        table.add_column(
            each.name,
            justify="right" if each.right else "left",
            style=each.style,
            no_wrap=not each.fold,
            width=widths[index],
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(_rich(row[index]) for index in shown))
    console.print(table)


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[Styled]], width: int) -> list[int]:
    """The columns to show: optional ones only where there is room, the last are the first to go."""
    shown = list(range(len(columns)))
    least = [_least_width(each, index, rows) for index, each in enumerate(columns)]
    for index in reversed(range(len(columns))):
        needed = sum(least[i] for i in shown) + _GAP * (len(shown) - 1)
        if needed > width and columns[index].optional:
            shown.remove(index)
    return shown


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[Styled]], shown: Sequence[int], width: int
) -> dict[int, int]:
    """The width of each column: Rich, left alone, cuts the last column rather than fold another."""
    longest = {i: max(map(len, _cells(columns[i], i, rows))) for i in shown}
    widths = {i: _least_width(columns[i], i, rows) for i in shown}
    room = width - sum(widths.values()) - _GAP * (len(shown) - 1)
    while room > 0 and (short := [i for i in shown if widths[i] < longest[i]]):
        widths[min(short, key=widths.__getitem__)] += 1
        room -= 1
    while room < 0 and (wide := [i for i in shown if columns[i].fold and widths[i] > 1]):
        widths[max(wide, key=widths.__getitem__)] -= 1
        room += 1
    return widths


def _least_width(column: Column, index: int, rows: Sequence[Sequence[Styled]]) -> int:
    """Without breaking a word; words longer than any reasonable column are broken."""
    cells = _cells(column, index, rows)
    if not column.fold:
        return max(map(len, cells))
    return min(max(len(word) for cell in cells for word in cell.split() or [""]), _LONGEST_WORD)


def _cells(column: Column, index: int, rows: Sequence[Sequence[Styled]]) -> list[str]:
    return [column.name, *(as_text(row[index]) for row in rows)]


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
