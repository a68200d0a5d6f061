"""``trivet fill``: bring what was computed elsewhere into the cache folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trivet.cli.app import command
from trivet.cli.opening import cache_folder
from trivet.cli.options import AsJson, CacheDir
from trivet.cli.output import Output, counted, in_bytes


@command
def fill(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A cache folder, or a file of JSON lines.")
    ],
    memo: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            show_default=False,
            help="For JSON lines: the memoised function whose results they are.",
        ),
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, help="How many processes.")] = 1,
    cache_dir: CacheDir = None,
    json: AsJson = False,
) -> None:
    """Fill the cache folder from another one, or with results of a function.

    Everything is verified. One that was interrupted goes on where it was. Results go to the cache
    that the function has.
    """
    from trivet.warm.filling import fill

    out = Output(json=json)
    folder = "" if memo else cache_folder(cache_dir)
    with out.logging(), out.progress("filling") as step:
        done = fill(
            source,
            memo=memo,
            cache=folder,
            jobs=jobs,
            progress=lambda done, total: step(done, total, "filling"),
        )
    if json:
        out.document(done)
        return
    out.line(
        f"{counted(done.written, 'entry')} written and read back, {in_bytes(done.size)}; "
        f"{done.known} kept before"
        + (f"; {done.refused} damaged or no longer valid" if done.refused else "")
    )
    if done.evicted:
        out.note(f"{done.evicted} made room for others: the budget of the folder is too small")
