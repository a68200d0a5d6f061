"""What `trivet bundle` says of a bundle, of a layer, and of what changed between two bundles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from trivet.cli.app import FAILED
from trivet.cli.output import Column, Output, Span, counted, in_bytes
from trivet.cli.rows import Row, row_of
from trivet.plans.model import backend_in_words

if TYPE_CHECKING:
    from trivet.plans.bundles import Held, Verified
    from trivet.stores.bundles import Difference
    from trivet.stores.bundles.comparison import Change
    from trivet.stores.layers.check import LayerVerdict


def report(out: Output, found: Verified) -> None:
    """Say what a sound bundle holds and who signed it."""
    writer = found.writer
    if out.json:
        out.document({**msgspec.structs.asdict(found), "entries": list(map(_held, found.entries))})
        return
    _print_rows(out, [(_row(each), each.size) for each in found.entries])
    signed = Span("not signed", "yellow")
    if found.signed_by:
        who = "nobody who is trusted here" if writer is None else f"{writer}, trusted"
        style = "yellow" if writer is None else "green"
        signed = Span(f"signed by {found.signed_by}, {who}", style)
    out.line()
    out.line(
        f"bundle {found.id[:12]}: {counted(len(found.entries), 'entry')}, "
        f"{in_bytes(found.unpacked)} in a file of {in_bytes(found.size)}"
    )
    out.line(signed)
    out.line(Span("all is what was written", "green"))


def report_layer(out: Output, folder: Path, verdicts: Sequence[LayerVerdict]) -> None:
    """Say what is damaged in a layer; exits with 1 when anything is."""
    damaged = [each for each in verdicts if each.problem is not None]
    if out.json:
        size = sum(each.size for each in verdicts)
        out.document({"entries": len(verdicts), "bytes": size, "damaged": damaged})
    else:
        if damaged:
            out.table(
                [Column("digest", style="cyan"), Column("bundle"), Column("problem", fold=True)],
                [(x.digest.hex()[:12], x.bundle[:12], x.problem or "") for x in damaged],
            )
            out.line()
        read = f"{counted(len(verdicts), 'entry')} of {folder} read: "
        sound = Span("all are what was installed", "green")
        out.line((read, Span(f"{len(damaged)} damaged", "bold red") if damaged else sound))
        if damaged:
            out.line("install the bundle again to mend them")
    if damaged:
        raise typer.Exit(FAILED)


def print_difference(out: Output, found: Difference) -> None:
    """Say what changed."""
    marks = {"added": "green", "removed": "red", "changed": "yellow"}
    lines = [(name, change) for name, changes in changes_of(found) for change in changes]
    if lines:
        out.table(
            [Column("what"), *_COLUMNS, Column("new", right=True)],
            [
                (Span(name, marks[name]), *_cells(_row(change), change.size), in_bytes(change.new))
                for name, change in lines
            ],
        )
        out.line()
    out.line(
        f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed, "
        f"{found.same} the same; {in_bytes(found.shared)} shared, {in_bytes(found.new)} new"
    )


def changes_of(found: Difference) -> list[tuple[str, list[Change]]]:
    """The changes by what they are."""
    return [("added", found.added), ("removed", found.removed), ("changed", found.changed)]


_COLUMNS = [
    Column("digest", style="cyan"),
    Column("kind"),
    Column("backend", fold=True),
    Column("shapes", fold=True),
    Column("size", right=True),
]


def _print_rows(out: Output, rows: Iterable[tuple[Row, int]]) -> None:
    out.table(_COLUMNS, [_cells(row, size) for row, size in rows])


def _cells(row: Row, size: int) -> tuple[str, ...]:
    backend = backend_in_words(row.backend, row.version) if row.backend else ""
    return row.digest[:8], row.space.partition("/")[0], backend, row.shapes, in_bytes(size)


def _row(entry: Held | Change) -> Row:
    from trivet.cache import StoredEntry

    return row_of(StoredEntry(entry.key, entry.descriptor, None), {}, {})


def _held(entry: Held | Change) -> dict[str, object]:
    row = _row(entry)
    return {
        "digest": row.digest,
        "space": row.space,
        "backend": row.backend,
        "version": row.version,
        "shapes": row.shapes,
        "tags": row.tags,
        "size": entry.size,
    }


def changed(change: Change) -> dict[str, object]:
    """A change, for a JSON document."""
    return {**_held(change), "new": change.new}
