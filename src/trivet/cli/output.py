"""Output: one JSON document, or text for people; diagnostics go to stderr.

Text is styled with Rich on a terminal, and plain everywhere else. Rich is imported only then: a
command in a script starts a good deal faster without it.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TextIO, TypeAlias

import msgspec

from trivet.errors import TrivetError
from trivet.warm.plain import plain

Step = Callable[[float, float, str], None]  # done, total, what


class Span(NamedTuple):
    """A piece of text with one of Rich's styles."""

    text: str
    style: str


Styled: TypeAlias = "str | Span | tuple[str | Span, ...]"


class Column(NamedTuple):
    """A column of a table.

    On a narrow terminal cells are wrapped between words where ``fold``, and the column is left out
    where ``optional``.
    """

    name: str
    right: bool = False
    style: str = ""
    fold: bool = False
    optional: bool = False


class Output:
    """Where a command writes.

    Args:
        json: whether stdout gets one JSON document and nothing else.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json

    def document(self, value: object) -> None:
        """Write ``value`` as the JSON document; digests and other bytes as hexadecimal text."""
        raw = msgspec.json.format(msgspec.json.encode(plain(value)), indent=2)
        sys.stdout.write(raw.decode() + "\n")

    def line(self, text: Styled = "") -> None:
        """Write a line; a terminal wraps it between words."""
        _write_line(sys.stdout, text)

    def items(self, rows: Iterable[tuple[Styled, Styled]]) -> None:
        """Write names and what they stand for side by side."""
        if sys.stdout.isatty():
            from trivet.cli import terminal

            terminal.print_items(list(rows))
        else:
            _write_cells([(name, text) for name, text in rows], (False, False))

    def fields(self, rows: Iterable[tuple[str, Styled]]) -> None:
        """`items` whose names stand back."""
        self.items((Span(name, "dim"), text) for name, text in rows)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[Styled]]) -> None:
        """Write a table."""
        if sys.stdout.isatty():
            from trivet.cli import terminal

            terminal.print_table(columns, list(rows))
        else:
            head = [each.name for each in columns]
            _write_cells([head, *rows], [each.right for each in columns])

    def note(self, text: str) -> None:
        """Write a diagnostic to stderr."""
        _write_line(sys.stderr, text)

    def error(self, error: TrivetError) -> None:
        """Write an error and its hint to stderr and, as JSON, to stdout."""
        _write_line(sys.stderr, (Span("error: ", "bold red"), error.message))
        if error.hint:
            _write_line(sys.stderr, (Span("  hint: ", "cyan"), error.hint))
        if self.json:
            facts = {"type": type(error).__name__, "message": error.message, "hint": error.hint}
            self.document({"error": facts})

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Step]:
        """A progress bar on stderr, if that is a terminal. Yields ``step(done, total, what)``."""
        if sys.stderr.isatty():
            from trivet.cli import terminal

            with terminal.progress(what) as step:
                yield step
        else:
            yield lambda done, total, what: None

    @contextlib.contextmanager
    def logging(self) -> Iterator[None]:
        """Show the warnings that the package logs meanwhile."""
        log, handler = logging.getLogger("trivet"), _LogHandler()
        log.addHandler(handler)
        try:
            yield
        finally:
            log.removeHandler(handler)


class _LogHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        _write_line(sys.stderr, (Span("warning: ", "yellow"), record.getMessage()))


def as_text(styled: Styled) -> str:
    """The text without its styles."""
    if isinstance(styled, Span):
        return styled.text
    return styled if isinstance(styled, str) else "".join(map(as_text, styled))


def _write_line(stream: TextIO, text: Styled) -> None:
    if stream.isatty():
        from trivet.cli import terminal

        terminal.print_line(stream, text)
    else:
        stream.write(as_text(text) + "\n")


def _write_cells(rows: Sequence[Sequence[Styled]], right: Sequence[bool]) -> None:
    """Columns as wide as their longest cell, two spaces apart."""
    texts = [[as_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        cells = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def in_bytes(size: float) -> str:
    """A size for people: ``"512 B"``, ``"98.3 MB"``; decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def in_seconds(seconds: float) -> str:
    """A duration for people: ``"0.14 ms"``, ``"31 ms"``, ``"1.42 s"``, ``"5 min"``."""
    if 0 < seconds < 0.01:
        return f"{seconds * 1e3:.2g} ms"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def at_time(seconds: float) -> str:
    """A point in time for people, in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def ago(seconds: float) -> str:
    """An age for people: ``"now"``, ``"5 min"``, ``"3 d"``."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "now"


def counted(number: int, what: str) -> str:
    """``"1 entry"``, ``"2 entries"``."""
    if number == 1:
        return f"1 {what}"
    return f"{number} {what.removesuffix('y')}ies" if what.endswith("y") else f"{number} {what}s"
