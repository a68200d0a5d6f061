"""``trivet verify``, ``gc`` and ``drop``: keeping the folder in order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trivet.cli.app import FAILED, NOT_FOUND, command
from trivet.cli.collection import collect_shared
from trivet.cli.opening import cache_folder, host_store, open_existing
from trivet.cli.options import AsJson, CacheDir, LayerDirs, Shared
from trivet.cli.output import Column, Output, Span, counted, in_bytes
from trivet.cli.rows import find_entry, model_names, read_activity

if TYPE_CHECKING:
    from trivet.cache import Cache
    from trivet.keys import Key


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """One entry that is not what was written."""

    digest: str
    model: str
    size: int
    problem: str


@command
def verify(
    cache_dir: CacheDir = None,
    json: AsJson = False,
) -> None:
    """Check every byte of every entry.

    Compares everything with its BLAKE3 digests, and moves damaged entries to quarantine. Exits with
    1 if there are any.
    """
    out = Output(json=json)
    entries = size = 0
    damaged = []
    with open_existing(cache_dir) as cache, out.progress("verifying") as step:
        names = model_names(read_activity(cache))
        store = host_store(cache)

        def progress(done: int, total: int) -> None:
            step(done, total, "verifying")

        for each in store.verify(progress):
            entries, size = entries + 1, size + each.size
            if each.problem is not None:
                digest = each.digest.hex()
                damaged.append(
                    Damage(
                        digest=digest,
                        model=names.get(digest, ""),
                        size=each.size,
                        problem=each.problem,
                    )
                )
        moved = bool(damaged) and not store.read_only
    if json:
        out.document({"entries": entries, "bytes": size, "damaged": damaged, "quarantined": moved})
    else:
        _print_damage(out, entries, size, damaged, moved=moved)
    if damaged:
        raise typer.Exit(FAILED)


def _print_damage(
    out: Output, entries: int, size: int, damaged: Sequence[Damage], *, moved: bool
) -> None:
    read = f"{counted(entries, 'entry')}, {in_bytes(size)} read"
    if not damaged:
        out.line((f"{read}: ", Span("all are what was written", "green")))
        return
    out.table(
        [
            Column("digest", style="cyan"),
            Column("model", fold=True),
            Column("size", right=True),
            Column("problem", fold=True),
        ],
        [(each.digest[:12], each.model, in_bytes(each.size), each.problem) for each in damaged],
    )
    where = "moved to quarantine; they will be made again" if moved else "left in place"
    out.line()
    out.line((f"{read}: ", Span(f"{len(damaged)} damaged", "bold red"), f", {where}"))


@command
def gc(
    shared: Annotated[
        str,
        typer.Option(
            metavar="URL",
            show_default=False,
            help="Collect in this object store instead of the cache folder.",
        ),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --shared: only show what would be done.")
    ] = False,
    cache_dir: CacheDir = None,
    json: AsJson = False,
) -> None:
    """Remove what can no longer be used.

    In the cache folder: expired and invalidated entries, what dead processes left behind, and what
    is over the budget.

    In an object store: expired, invalidated and damaged entries. Unreferenced files and chunks are
    marked, and removed by a later gc.
    """
    out = Output(json=json)
    if shared:
        collect_shared(shared, out, dry_run=dry_run)
        return
    if dry_run:
        raise typer.BadParameter("is for --shared", param_hint="--dry-run")
    with open_existing(cache_dir) as cache, out.progress("collecting"):
        store = host_store(cache)
        before = store.stats().size
        report = store.gc()
        after = store.stats().size
    if json:
        out.document({"removed": report, "bytes_before": before, "bytes_after": after})
        return
    reasons = [
        ("expired", report.expired),
        ("invalidated", report.invalidated),
        ("over the budget", report.over_budget),
        ("files of no entry", report.orphans),
        ("left half written", report.staging),
        ("old in quarantine", report.quarantined),
    ]
    removed = [(name, str(count)) for name, count in reasons if count]
    if removed:
        out.table([Column("removed"), Column("number", right=True)], removed)
        out.line()
    freed = in_bytes(report.size) if removed else "nothing"
    out.line(f"{freed} freed, {in_bytes(after)} kept")


@command
def drop(
    digests: Annotated[
        list[str] | None,
        typer.Argument(metavar="DIGEST", show_default=False, help="Digests, as 'ls' shows them."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TAG",
            show_default=False,
            help="Invalidate everything with this tag, at once for all processes.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="Remove all plans of this model."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove everything.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")] = False,
    cache_dir: CacheDir = None,
    shared: Shared = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """Remove entries, or invalidate all with a tag.

    Exits with 3 if a digest is not found, with 1 if not confirmed.
    """
    out = Output(json=json)
    if sum(map(bool, (digests, tag, model, everything))) != 1:
        raise typer.BadParameter("say either some DIGESTs, or --tag, or --model, or --all")
    with open_existing(cache_dir, shared, layers=layer) as cache:
        if tag:
            _confirm(f"invalidate all that depends on {', '.join(tag)}?", yes=yes)
            document: dict[str, object] = {"invalidated": dict(cache.invalidate(*tag))}
            said = f"invalidated: {', '.join(tag)}"
        elif everything:
            count = _count(cache)
            _confirm(f"remove all {counted(count, 'entry')} of {cache_folder(cache_dir)}?", yes=yes)
            if cache.store is not None:
                host_store(cache).clear()
            cache.hide_layers()
            document, said = {"dropped": count}, f"{counted(count, 'entry')} removed"
        else:
            keys = _keys_of_model(cache, model) if model else _keys(cache, digests or [], out)
            _confirm(f"remove {counted(len(keys), 'entry')}?", yes=yes or not keys)
            dropped = [key.digest.hex() for key in keys if cache.forget(key)]
            document, said = {"dropped": dropped}, f"{counted(len(dropped), 'entry')} removed"
    out.document(document) if json else out.line(said)


def _count(cache: Cache) -> int:
    """How many entries there are, those of layers that can be seen included."""
    stored = host_store(cache).stats().entries if cache.store is not None else 0
    return stored + sum(each.layer is not None and each.invalid is None for each in cache.entries())


def _keys(cache: Cache, prefixes: Sequence[str], out: Output) -> list[Key]:
    found = []
    for prefix in prefixes:
        entry = find_entry(cache, prefix)
        if entry is None:
            out.note(f"no entry has a digest that begins with {prefix}; nothing was removed")
            raise typer.Exit(NOT_FOUND)
        found.append(entry.key)
    return found


def _keys_of_model(cache: Cache, model: Path) -> list[Key]:
    """Keys of all plans made from the file as it is now."""
    from trivet.plans.graph import GraphMemo
    from trivet.plans.key import part
    from trivet.plans.memo import CacheMemo

    graph = GraphMemo(CacheMemo(cache), cache.clock).identify(model)
    wanted = (graph.structure, graph.weights)
    return [
        each.key
        for each in cache.entries()
        if (part(each.key, "graph", "structure"), part(each.key, "graph", "weights")) == wanted
    ]


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here; add --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(FAILED)
