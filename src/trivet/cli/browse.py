"""``trivet ls`` and ``trivet show``."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.app import NOT_FOUND, command
from trivet.cli.opening import open_existing
from trivet.cli.options import AsJson, CacheDir, LayerDirs, ModelText, OneBackend
from trivet.cli.output import (
    Column,
    Output,
    Span,
    Styled,
    ago,
    at_time,
    counted,
    in_bytes,
    in_seconds,
)
from trivet.cli.rows import (
    Row,
    error_of,
    find_entry,
    model_names,
    read_activity,
    read_rows,
    state_of,
)
from trivet.cli.words import reason_in_words, value_in_words
from trivet.plans.model import backend_in_words

if TYPE_CHECKING:
    from trivet.cache import Cache, StoredEntry
    from trivet.entries import Manifest

_OWN_TAGS = ("backend=", "graph=")  # every plan has them; the other columns say the same


class Sort(enum.StrEnum):
    """Orders of `ls`: the largest, costliest, newest or most used first."""

    SIZE = "size"
    COST = "cost"
    CREATED = "created"
    USES = "uses"


@command
def ls(
    space: Annotated[str, typer.Option(help="The kind of entries; 'all' for every kind.")] = "plan",
    model: ModelText = "",
    backend: OneBackend = None,
    tag: Annotated[
        str, typer.Option(metavar="TAG", show_default=False, help="Only entries with this tag.")
    ] = "",
    sort: Annotated[Sort, typer.Option(help="What to sort by.")] = Sort.CREATED,
    cache_dir: CacheDir = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """List what is stored."""
    out = Output(json=json)
    with open_existing(cache_dir, layers=layer) as cache:
        rows = read_rows(cache, None if space == "all" else space)
    rows = [
        each
        for each in rows
        if (not model or model in each.model)
        and (not backend or backend == each.backend)
        and (not tag or tag in each.tags)
    ]
    rows.sort(key=lambda row: -getattr(row, sort))
    if json:
        out.document({"entries": rows})
    else:
        _print_rows(out, rows, plans=space == "plan")


def _print_rows(out: Output, rows: list[Row], *, plans: bool) -> None:
    if not rows:
        out.line("nothing is stored")
        return
    tagged, layered = any(_tags(row) for row in rows), any(row.layer for row in rows)
    columns = [
        Column("digest", style="cyan"),
        Column("model" if plans else "kind", fold=True),
        *((Column("backend", fold=True), Column("shapes", fold=True)) if plans else ()),
        Column("size", right=True),
        Column("cost", right=True),
        Column("uses", right=True, optional=True),
        Column("age", right=True, optional=True),
        *((Column("tags", fold=True, optional=True),) if tagged else ()),
        *((Column("layer", fold=True, optional=True),) if layered else ()),
        Column("state"),
    ]
    cells = [list(_cells(row, plans=plans, tagged=tagged, layered=layered)) for row in rows]
    out.table(columns, cells)
    total = sum(row.size for row in rows)
    saved = sum(row.cost for row in rows)
    out.line()
    out.line(f"{counted(len(rows), 'entry')}, {in_bytes(total)}, {in_seconds(saved)} of computing")


def _cells(row: Row, *, plans: bool, tagged: bool, layered: bool) -> Iterator[Styled]:
    yield row.digest[:8]
    if plans:
        yield row.model or row.graph[:8]
        yield backend_in_words(row.backend, row.version)
        yield row.shapes
    else:
        yield row.space
    yield in_bytes(row.size)
    yield in_seconds(row.cost) if row.cost else ""
    yield str(row.uses)
    yield ago(time.time() - row.created)
    if tagged:
        yield " ".join(_tags(row))
    if layered:
        yield row.layer
    yield _state(row.state)


def _tags(row: Row) -> list[str]:
    return [tag for tag in row.tags if not tag.startswith(_OWN_TAGS)]


def _state(state: str) -> Span:
    style = {"ok": "green", "failed": "red"}.get(state, "yellow")
    return Span(state, style)


@command
def show(
    digest: Annotated[
        str, typer.Argument(metavar="DIGEST", help="A digest or its beginning, as 'ls' shows it.")
    ],
    cache_dir: CacheDir = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """Show one entry: its key, its descriptor, its files.

    Exits with 3 when there is no such entry.
    """
    out = Output(json=json)
    with open_existing(cache_dir, layers=layer) as cache:
        entry = find_entry(cache, digest)
        if entry is None:
            out.note(f"no entry has a digest that begins with {digest}")
            if json:
                out.document(None)
            raise typer.Exit(NOT_FOUND)
        name = model_names(read_activity(cache)).get(entry.key.digest.hex(), "")
        files = _files(cache, entry)
    out.document(_document(entry, name, files)) if json else _print_entry(out, entry, name, files)


def _files(cache: Cache, entry: StoredEntry) -> tuple[Path, Manifest] | None:
    """The folder and the manifest of an artifact."""
    from trivet.entries import Manifest, unseal

    found = cache.stored_files(entry.key)
    if found is None:
        return None
    sealed, folder = found
    return folder, Manifest.decode(unseal(sealed).payload)


def _document(entry: StoredEntry, name: str, files: tuple[Path, Manifest] | None) -> dict[str, Any]:
    key = entry.key
    return {
        "digest": key.digest,
        "space": key.space,
        "model": name,
        "state": state_of(entry),
        "key": {field: key[field] for field in key},
        "descriptor": entry.descriptor,
        "layer": entry.layer,
        "folder": files[0] if files else None,
        "files": files[1].files if files else [],
    }


def _print_entry(
    out: Output, entry: StoredEntry, name: str, files: tuple[Path, Manifest] | None
) -> None:
    key, facts = entry.key, entry.descriptor
    state, error = state_of(entry), error_of(entry)
    out.fields(
        [
            ("digest", key.digest.hex()),
            ("kind", key.space),
            *([("model", name)] if name else []),
            ("state", _state(state)),
            *([("because", reason_in_words(state))] if entry.invalid else []),
            *([("error", error)] if error else []),
            ("created", at_time(facts.created)),
            ("expires", at_time(facts.expires) if facts.expires is not None else "never"),
            ("cost", in_seconds(facts.cost)),
            ("size", in_bytes(facts.size)),
            ("tags", ", ".join(facts.tags) or "(none)"),
            ("group", facts.group or "(none)"),
            ("codec", facts.codec),
            *([("layer", str(entry.layer))] if entry.layer is not None else []),
        ]
    )
    _print_mapping(out, "key", {field: key[field] for field in key})
    _print_mapping(out, "detail", facts.detail)
    if files:
        folder, manifest = files
        out.line()
        out.table(
            [Column("file", fold=True), Column("size", right=True), Column("BLAKE3")],
            [(each.name, in_bytes(each.size), each.blake3.hex()[:16]) for each in manifest.files],
        )
        out.line()
        out.line(f"in {folder}")


def _print_mapping(out: Output, title: str, mapping: Mapping[str, Any]) -> None:
    if mapping:
        out.line()
        out.line(Span(title, "bold"))
        out.fields((f"  {name}", text) for name, text in _flat(mapping, ""))


def _flat(mapping: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, value in mapping.items():
        full = f"{path}{name}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{full}.")
        else:
            yield full, value_in_words(full, value)
