"""The arguments of a program, as fields of a key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.keys import FieldValue
from trivet.plans.installed import file_digest

if TYPE_CHECKING:
    from trivet.plans.memo import Memo

MANY = -1
_CONFIGURES = (".json", ".toml", ".yaml", ".yml")


def argument_fields(
    words: Sequence[str], neutral: Mapping[str, int], cwd: str, memo: Memo | None = None
) -> dict[str, FieldValue]:
    """Each option with the words that follow it, and their order, for a later one may undo an
    earlier one.

    What stands before all options is called ``""``. An option that is given again is numbered. A
    file that configures counts by its content, wherever it lies.

    Args:
        words: what ``sys.argv`` holds after the program.
        neutral: options on which nothing compiled depends, in their long form with dashes, to how
            many words follow: `MANY` is all up to the next option.
        cwd: what names of files are relative to.
        memo: remembers digests of unchanged files.

    Raises `OSError` and `BackendError` for a file that can't be read.
    """
    found: dict[str, FieldValue] = {}
    order = []
    for option, values in _grouped(words, neutral):
        name, again = option, 1
        while name in found:
            again += 1
            name = f"{option} ({again})"
        told = [_value(each, cwd, memo) for each in values]
        found[name] = told[0] if len(told) == 1 else tuple(told)
        order.append(name)
    return {"arguments": found, "order_of_arguments": tuple(order)}


def _grouped(words: Sequence[str], neutral: Mapping[str, int]) -> Iterator[tuple[str, list[str]]]:
    group: tuple[str, list[str]] = ("", [])
    skip = 0
    for word in words:
        if not word.startswith("-"):
            if skip:
                skip -= 1
            else:
                group[1].append(word)
            continue
        if group[0] or group[1]:
            yield group
        name, equals, value = word.partition("=")
        skip = 0
        group = ("", [])
        takes = neutral.get(name.replace("_", "-"))
        if takes is None:
            group = (_text(name), [equals + value] if equals else [])
        elif not equals:
            skip = len(words) if takes == MANY else takes
    if group[0] or group[1]:
        yield group


def _value(word: str, cwd: str, memo: Memo | None) -> FieldValue:
    path = Path(cwd, word.removeprefix("="))
    if path.suffix in _CONFIGURES and os.path.isfile(path):  # False for what can't be a name
        return {"file": file_digest(path, memo)}
    return _text(word)


def _text(word: str) -> str:
    return word.encode(errors="backslashreplace").decode()
