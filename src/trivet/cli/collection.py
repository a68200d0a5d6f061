"""``trivet gc --shared``: removing from an object store what nothing names any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer

from trivet.cli.output import Column, Output, in_bytes

if TYPE_CHECKING:
    from trivet.stores.shared.collector import Collected, Tally

_AGE = 86400.0  # seconds; longer than any upload takes
_WORDS = {"entries": "entries", "blobs": "files", "recipes": "files in chunks", "chunks": "chunks"}


def collect_shared(url: str, out: Output, *, dry_run: bool) -> None:
    """Collect, and say what was done."""
    from trivet.cache.shared import Shared
    from trivet.stores.shared.collector import collect

    try:
        shared = Shared.open(url)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--shared") from error
    if shared.objects is None:
        raise typer.BadParameter(
            "a Valkey or Redis removes by itself; name an object store", param_hint="--shared"
        )
    try:
        with out.progress("collecting") as step:
            found = collect(
                shared.objects,
                age=_AGE,
                dry_run=dry_run,
                progress=lambda done, total: step(done, total, "collecting"),
            )
    finally:
        shared.close()
    if out.json:
        out.document({"dry_run": dry_run, **msgspec.structs.asdict(found)})
    else:
        _print(out, found, dry_run=dry_run)


def _print(out: Output, found: Collected, *, dry_run: bool) -> None:
    rows = [
        (word, *(_cell(tallies[kind]) for tallies in (found.kept, found.marked, found.removed)))
        for kind, word in _WORDS.items()
    ]
    if any(any(cells) for _, *cells in rows):
        names = ("kept", "marked", "removed")
        out.table([Column(""), *(Column(each, right=True) for each in names)], rows)
        out.line()
    freed, later = (
        in_bytes(sum(each.size for each in tallies.values()))
        for tallies in (found.removed, found.marked)
    )
    would = "would be " if dry_run else ""
    out.line(f"{freed} {would}freed; {later} {would}marked as unused")
    if found.marked and not dry_run and any(each.number for each in found.marked.values()):
        out.line("what is still unused goes with a gc that runs a day from now, or later")


def _cell(tally: Tally) -> str:
    return f"{tally.number}, {in_bytes(tally.size)}" if tally.number else ""
