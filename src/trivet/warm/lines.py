"""Where in a TOML file something stands: the standard library's reader doesn't say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

Place: TypeAlias = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, place: Place) -> int | None:
    """The line, counted from 1, of what stands at ``place``, or of the nearest thing around it.

    ``place`` is names of tables and keys, and numbers within arrays of tables: ``("model", 1,
    "shapes")``. None where nothing around it is found, such as in a table written in one line.
    """
    best, found = 0, None
    for number, here in _places(text):
        if len(here) > best and here == place[: len(here)]:
            best, found = len(here), number
    return found


def _places(text: str) -> Iterator[tuple[int, Place]]:
    """Every header and key, with its line."""
    counts: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header:
            names: Place = tuple(_parts(header[2]))
            inside = _within(names, counts)
            if header[1] == "[[":
                counts[inside] = counts.get(inside, -1) + 1
                inside = (*inside, counts[inside])
            elif inside in counts:
                inside = (*inside, counts[inside])
            table = inside
            yield number, table
            continue
        key = _KEY.match(line)
        if key:
            yield number, (*table, *_parts(key[1]))


def _within(names: Place, counts: dict[Place, int]) -> Place:
    """``names`` with the number of the current element after each array of tables but the last."""
    inside: Place = ()
    for name in names[:-1]:
        inside = (*inside, name)
        if inside in counts:
            inside = (*inside, counts[inside])
    return (*inside, names[-1])


def _parts(dotted: str) -> list[str]:
    return [each.strip("\"'") for each in _PART.findall(dotted)]
