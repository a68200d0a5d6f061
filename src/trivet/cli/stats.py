"""``trivet stats``: what the cache did, from its activity log, and what it holds."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trivet.cli.app import command
from trivet.cli.opening import host_store, open_existing
from trivet.cli.options import AsJson, CacheDir, LayerDirs, parse_age
from trivet.cli.output import Column, Output, Span, counted, in_bytes, in_seconds
from trivet.cli.rows import Row, read_activity, read_rows
from trivet.cli.words import reason_in_words
from trivet.plans.activity import KEY_LIMIT, PlanUse

if TYPE_CHECKING:
    from trivet.stores.layers import Layer


class By(enum.StrEnum):
    """How loads are grouped."""

    MODEL = "model"
    BACKEND = "backend"
    BUCKET = "bucket"


class Line(msgspec.Struct, kw_only=True):
    """Loads of one group.

    ``spent`` is seconds of compiling, ``spared`` what the plans that were hit had cost. ``alarm``
    says that the group has more distinct keys than shapes that converge would make. ``outside`` is
    the number of distinct shapes, in each process, that the shape rules did not take.
    """

    name: str
    loads: int = 0
    hits: int = 0
    compiled: int = 0
    uncompiled: int = 0
    hit_rate: float = 0.0
    failure_rate: float = 0.0
    spent: float = 0.0
    spared: float = 0.0
    keys: int = 0
    alarm: bool = False
    outside: int = 0
    misses: dict[str, int] = {}


class LayerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A layer: ids of its bundles, entries that the cache folder doesn't have, and their bytes."""

    root: str
    bundles: tuple[str, ...]
    entries: int
    size: int


@command
def stats(
    since: Annotated[
        str,
        typer.Option(
            metavar="AGE", show_default=False, help="Only loads this recent: 90m, 24h, 7d."
        ),
    ] = "",
    by: Annotated[By, typer.Option(help="How to group loads.")] = By.MODEL,
    cache_dir: CacheDir = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """Show loads, hits, misses by reason, time spent and spared.

    Loads come from the folder's activity log, which all processes write.
    """
    out = Output(json=json)
    age = parse_age(since, "--since") if since else None
    with open_existing(cache_dir, layers=layer) as cache:
        rows = read_rows(cache, None)
        earliest = 0.0 if age is None else cache.clock.time() - age
        uses = [each for each in read_activity(cache) if each.time >= earliest]
        figures = host_store(cache).stats() if cache.store is not None else None
        layers = [_layer(each, rows) for each in cache.layers]
    costs, spaces = {row.digest: row.cost for row in rows}, _by_space(rows)
    lines, total = summarise(uses, by, costs), add_up("total", uses, costs)
    if json:
        document = {"since": since or None, "by": by, "groups": lines, "total": total}
        out.document({**document, "store": figures, "layers": layers, "spaces": spaces})
        return
    _print_loads(out, lines, total, by)
    out.line()
    out.table(
        [Column("kind"), Column("entries", right=True), Column("size", right=True)],
        [(name, str(count), in_bytes(size)) for name, (count, size) in sorted(spaces.items())],
    )
    out.line()
    if figures is not None:
        out.line(
            f"{in_bytes(figures.size)} of {in_bytes(figures.budget)} in {figures.root}, "
            f"{figures.quarantined} in quarantine"
        )
    for each in layers:
        out.line(
            f"{counted(each.entries, 'entry')}, {in_bytes(each.size)} in the layer {each.root}, "
            f"from {counted(len(each.bundles), 'bundle')}"
        )


def _layer(layer: Layer, rows: Iterable[Row]) -> LayerFigures:
    root = str(layer.root)
    sizes = [row.size for row in rows if row.layer == root]
    return LayerFigures(root=root, bundles=layer.bundles(), entries=len(sizes), size=sum(sizes))


def _by_space(rows: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """Number of entries and bytes of each kind of entry."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        count, size = found.get(row.space, (0, 0))
        found[row.space] = (count + 1, size + row.size)
    return found


def summarise(uses: Iterable[PlanUse], by: By, costs: Mapping[str, float]) -> list[Line]:
    """A line for each group, the one with most loads first. ``costs`` are in seconds, by key."""
    name: Callable[[PlanUse], str] = {
        By.MODEL: lambda use: use.model,
        By.BACKEND: lambda use: use.backend,
        By.BUCKET: lambda use: f"{use.model} {use.bucket}",
    }[by]
    groups: dict[str, list[PlanUse]] = {}
    for use in uses:
        groups.setdefault(name(use), []).append(use)
    lines = [add_up(each, members, costs) for each, members in groups.items()]
    return sorted(lines, key=lambda line: (-line.loads, line.name))


def add_up(name: str, uses: list[PlanUse], costs: Mapping[str, float]) -> Line:
    """The figures of one group."""
    outside = sum(not use.is_load for use in uses)
    uses = [use for use in uses if use.is_load]
    recorded = {use.key: use.compile_seconds for use in uses if use.compile_seconds}
    sources = Counter(use.source for use in uses)
    hits = [use for use in uses if use.source == "cache"]
    by_graph: dict[str, set[str]] = {}
    for use in uses:
        by_graph.setdefault(use.graph, set()).add(use.key)
    loads = len(uses)
    return Line(
        name=name,
        loads=loads,
        hits=len(hits),
        compiled=sources["compiled"],
        uncompiled=sources["uncompiled"],
        hit_rate=round(len(hits) / loads, 4) if loads else 0.0,
        failure_rate=round(sources["uncompiled"] / loads, 4) if loads else 0.0,
        spent=round(sum(use.compile_seconds for use in uses), 3),
        spared=round(sum(costs.get(use.key, recorded.get(use.key, 0.0)) for use in hits), 3),
        keys=sum(len(keys) for keys in by_graph.values()),
        alarm=any(len(keys) > KEY_LIMIT for keys in by_graph.values()),
        outside=outside,
        misses=dict(Counter(use.reason for use in uses if use.source != "cache" and use.reason)),
    )


def _print_loads(out: Output, lines: list[Line], total: Line, by: By) -> None:
    if not lines:
        out.line("no plan was loaded in this time")
        return
    out.table(
        [
            Column(by.value, fold=True),
            *(
                Column(name, right=True)
                for name in ("loads", "hits", "hit rate", "compiled", "failed", "spent", "spared")
            ),
            Column("keys", right=True),
        ],
        [_cells(line, "") for line in lines] + ([_cells(total, "bold")] if len(lines) > 1 else []),
    )
    if total.misses:
        out.line()
        out.table(
            [Column("misses", right=True), Column("reason")],
            [
                (str(count), reason_in_words(reason))
                for reason, count in sorted(total.misses.items(), key=lambda each: -each[1])
            ],
        )
    for line in lines:
        if line.outside:
            out.line()
            out.line(
                Span(
                    f"! {line.name}: {counted(line.outside, 'shape')} of requests lay outside the "
                    "shape rules",
                    "bold yellow",
                )
            )
        if line.alarm:
            out.line()
            out.line(
                Span(
                    f"! {line.name} has more than {KEY_LIMIT} distinct keys: its shapes don't "
                    "converge. Give buckets to the axes that vary, or leave them free.",
                    "bold red",
                )
            )


def _cells(line: Line, style: str) -> list[Span]:
    cells = [
        line.name,
        str(line.loads),
        str(line.hits),
        f"{line.hit_rate:.0%}",
        str(line.compiled),
        str(line.uncompiled),
        in_seconds(line.spent),
        in_seconds(line.spared),
        f"{line.keys} !" if line.alarm else str(line.keys),
    ]
    return [Span(each, "bold red" if line.alarm else style) for each in cells]
