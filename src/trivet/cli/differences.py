"""The fields in which a key differs from the nearest stored one, as data and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from trivet.cli.output import Column, Output, counted
from trivet.cli.words import difference_in_words, field_in_words
from trivet.keys import FieldDifference

FieldRow: TypeAlias = tuple[str, str, str, str]  # name, asked for, stored, what it stands for


def described(differences: Iterable[FieldDifference]) -> list[dict[str, Any]]:
    """Each difference with its values in words, for a JSON document."""
    told = []
    for each in differences:
        mine, theirs = difference_in_words(each)
        told.append(
            {"field": each.name, "mine": mine, "theirs": theirs, "means": field_in_words(each.name)}
        )
    return told


def rows_of(differences: Iterable[Mapping[str, Any]]) -> list[FieldRow]:
    """Rows for people. The libraries of another version of the backend are only counted."""
    found = list(differences)
    fields = {each["field"] for each in found}
    rows: list[FieldRow] = []
    libraries = 0
    for each in found:
        if "backend.version" in fields and each["field"].startswith("backend.libraries."):
            libraries += 1
        else:
            rows.append((each["field"], each["mine"], each["theirs"], each["means"]))
    if libraries:
        name = "backend.libraries"
        rows.append((name, counted(libraries, "file"), "", field_in_words(name)))
    return rows


def print_nearest(
    out: Output, kept: str, which: str, rows: Sequence[FieldRow], *, fields: int, unusable: str
) -> None:
    """Say which stored key is the nearest one, and show the fields that differ.

    Args:
        kept: the word for it: ``"stored"``, ``"kept"``.
        which: the key, as people are told.
        rows: of the table.
        fields: how many differ.
        unusable: why it would not be used itself; empty where it would.
    """
    if not fields:
        out.line(f"  {kept} is {which}, under this very key")
        return
    out.line(f"  nearest is {which}; it differs in {counted(fields, 'field')}")
    if unusable:
        out.line(f"  (and could not be used itself: {unusable})")
    out.line()
    out.table([Column(each, fold=True) for each in ("field", "asked for", kept, "that is")], rows)
