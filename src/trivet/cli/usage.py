"""``trivet usage``: what holds the bytes of the cache folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from trivet.cli.app import command
from trivet.cli.opening import host_store, open_existing
from trivet.cli.options import AsJson, CacheDir
from trivet.cli.output import Column, Output, ago, counted, in_bytes, in_seconds
from trivet.events import Tier

if TYPE_CHECKING:
    from trivet.cache.usage import Share


@command
def usage(
    cache_dir: CacheDir = None,
    json: AsJson = False,
) -> None:
    """Show what holds the bytes: functions, sizes, ages, what has no lifetime.

    Of the cache folder. Programs ask for that of their own memory with Cache.usage().
    """
    from trivet.values.keys import FUNCTION  # not for --help

    out = Output(json=json)
    with open_existing(cache_dir) as cache, out.progress("looking") as step:
        figures = host_store(cache).stats()
        found = cache.usage(
            Tier.HOST,
            by=FUNCTION,
            progress=lambda done: step(done, figures.entries, "looking"),
        )
    if json:
        document = {**msgspec.structs.asdict(found), "budget": figures.budget}
        out.document({"functions": document.pop("names"), **document})
        return
    if not found.total.entries:
        out.line("nothing is stored")
        return
    _print(out, "function", found.names, lambda share: share.name)
    _print(out, "size", found.sizes, lambda share: _class_of(share, in_bytes))
    _print(out, "age", found.ages, lambda share: _class_of(share, ago))
    total = found.total
    out.line(
        f"{counted(total.entries, 'entry')}, {in_bytes(total.size)} of {in_bytes(figures.budget)}; "
        f"{total.without_lifetime} without a lifetime, {in_bytes(total.size_without_lifetime)}"
    )


def _print(out: Output, what: str, shares: Sequence[Share], name: Callable[[Share], str]) -> None:
    out.table(
        [
            Column(what, fold=True),
            Column("entries", right=True),
            Column("size", right=True),
            Column("cost", right=True, optional=True),
            Column("without lifetime", right=True),
        ],
        [
            (
                name(each),
                str(each.entries),
                in_bytes(each.size),
                in_seconds(each.cost),
                in_bytes(each.size_without_lifetime) if each.without_lifetime else "",
            )
            for each in shares
        ],
    )
    out.line()


def _class_of(share: Share, words: Callable[[float], str]) -> str:
    return "more" if share.below is None else f"under {words(share.below)}"
