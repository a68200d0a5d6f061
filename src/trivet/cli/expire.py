"""``trivet expire``: lifetimes for values that have none."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from trivet.cli.app import command
from trivet.cli.opening import host_store, open_existing
from trivet.cli.options import AsJson, CacheDir, parse_age
from trivet.cli.output import Output, counted, in_bytes


@command
def expire(
    age: Annotated[
        str, typer.Argument(metavar="AGE", help="How long values live, such as 30d; 0s: no longer.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    cache_dir: CacheDir = None,
    json: AsJson = False,
) -> None:
    """Give values that have no lifetime one, and remove those that are older.

    A lifetime counts from when the value was made. Values with a lifetime keep theirs; plans have
    none, and keep none.
    """
    from trivet.values.keys import SPACE  # not for --help

    out = Output(json=json)
    seconds = parse_age(age, "AGE")
    lifetime = None if dry_run else seconds
    with open_existing(cache_dir) as cache, out.progress("looking") as step:
        total = host_store(cache).stats().entries
        done = cache.limit_lifetimes(
            lifetime,
            space=SPACE.partition("/")[0],
            progress=lambda looked: step(looked, total, "looking"),
        )
    if json:
        out.document(msgspec.structs.asdict(done))
        return
    out.line(
        f"{counted(done.without_lifetime, 'value')} without a lifetime, {in_bytes(done.size)}"
        + ("" if dry_run else f": {done.given} have one now, {done.dropped} were older, removed")
    )
