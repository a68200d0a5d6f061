"""``trivet why``: would it hit, and if not, in which field does the key differ?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trivet.cli.app import NOT_FOUND, command
from trivet.cli.differences import described, print_nearest, rows_of
from trivet.cli.opening import open_cache, open_existing
from trivet.cli.options import (
    AsJson,
    BackendOptions,
    Backends,
    CacheDir,
    LayerDirs,
    ShapeRules,
    Shared,
)
from trivet.cli.output import Output, Span, at_time
from trivet.cli.rows import model_names, read_activity
from trivet.cli.warm import read_targets
from trivet.cli.words import NOT_SET, bucket_in_words, reason_in_words
from trivet.events import MissReason
from trivet.plans.errors import PADDING, recorded_reason

if TYPE_CHECKING:
    from trivet.cache import Neighbour
    from trivet.plans.plans import Lookup, Plans
    from trivet.warm.planfile import Wanted

Target = Annotated[
    Path | None,
    typer.Argument(metavar="MODEL|PLAN.toml", help="A model, or a plan file.", show_default=False),
]


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """The stored plan whose key differs in the fewest fields."""

    key: str
    model: str  # the file that was last seen to make it, if that is known
    created: float
    unusable: str | None  # why it would not be used even if the keys were equal
    differences: list[dict[str, Any]]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one variant would hit. ``reason`` is empty for a hit."""

    model: str
    backend: str
    shapes: str
    key: str
    hit: bool
    reason: str
    detail: str
    nearest: Nearest | None


@command
def why(
    target: Target = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Compare this host with the one on which 'trivet fingerprint' wrote this file.",
        ),
    ] = None,
    backend: Backends = None,
    shapes: ShapeRules = None,
    option: BackendOptions = None,
    cache_dir: CacheDir = None,
    shared: Shared = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """Show whether a model would hit, and if not, what differs.

    For a miss, shows the nearest stored key and the fields in which it differs.

    Exits with 0 if every variant would hit, else with 3.
    """
    from trivet.plans.plans import Plans

    out = Output(json=json)
    if (target is None) == (against is None):
        raise typer.BadParameter("name a model or a plan file, or another host by --against")
    if against is not None:
        from trivet.cli.fingerprint import compare

        with open_cache(cache_dir, layers=layer) as cache:
            if not compare(out, cache, against):
                raise typer.Exit(NOT_FOUND)
        return
    assert target is not None
    verdicts = []
    with open_existing(cache_dir, shared, layers=layer) as cache:
        names = model_names(read_activity(cache))
        for wanted in read_targets([target], backend, shapes, option, ""):
            plans = Plans(cache, wanted.backend)
            with out.progress(f"looking for {wanted.path.name}"):
                found = plans.find(wanted.path, wanted.shapes)
                verdicts += [judge(plans, wanted, each, names) for each in found]
    if json:
        out.document({"hit": all(each.hit for each in verdicts), "variants": verdicts})
    else:
        for verdict in verdicts:
            _print(out, verdict)
    if not all(each.hit for each in verdicts):
        raise typer.Exit(NOT_FOUND)


def judge(plans: Plans, wanted: Wanted, lookup: Lookup, names: Mapping[str, str]) -> Verdict:
    """The verdict on one variant."""
    from trivet.cache import Failed, Hit, Miss

    found = lookup.found
    key, reason, detail = lookup.bound, "", ""
    if isinstance(found, Hit):
        key = found.value.key
        reason, detail = (PADDING, lookup.padding) if lookup.padding else ("", "")
    elif isinstance(found, Miss):
        reason, detail = found.reason.value, found.detail
    elif isinstance(found, Failed):
        reason = recorded_reason(found.error_class)
        detail = f"{found.error_class}: {found.error_text}"
    nearest = None
    if isinstance(found, Miss):
        keys = (lookup.bound, lookup.portable)
        near = [neighbour for each in keys for neighbour in plans.why(each)]
        nearest = _nearest(near, names)
    return Verdict(
        model=str(wanted.path),
        backend=wanted.backend.name,
        shapes=bucket_in_words(key.get("shapes")),
        key=key.digest.hex(),
        hit=isinstance(found, Hit) and not lookup.padding,
        reason=reason,
        detail=detail,
        nearest=nearest,
    )


def _nearest(neighbours: Sequence[Neighbour], names: Mapping[str, str]) -> Nearest | None:
    """The nearer one of those to the bound and to the portable key."""
    if not neighbours:
        return None
    best = min(neighbours, key=lambda each: len(each.differences))
    stored = best.entry
    failure = stored.descriptor.failure
    unusable = (
        f"{recorded_reason(failure.error_class)}: {failure.text}" if failure else stored.invalid
    )
    return Nearest(
        key=stored.key.digest.hex(),
        model=names.get(stored.key.digest.hex(), ""),
        created=stored.descriptor.created,
        unusable=unusable,
        differences=described(best.differences),
    )


def _print(out: Output, verdict: Verdict) -> None:
    what = f"{Path(verdict.model).name} {verdict.shapes} on {verdict.backend}"
    if verdict.hit:
        out.line((Span("would hit   ", "bold green"), what, f"  {verdict.key[:12]}"))
        return
    out.line((Span("would miss  ", "bold yellow"), what))
    out.line(f"  {reason_in_words(verdict.reason)}")
    if verdict.detail:
        out.line(f"  {verdict.detail}")
    near = verdict.nearest
    if near is None:
        if verdict.reason == MissReason.ABSENT:
            out.line("  no plan is stored at all")
        return
    stored = f"{near.key[:12]} of {at_time(near.created)}"
    if near.model not in ("", Path(verdict.model).name):
        stored = f"{near.key[:12]} ({near.model}) of {at_time(near.created)}"
    by_backend = any(each["field"] == "backend.name" for each in near.differences)
    print_nearest(
        out,
        "stored",
        stored,
        rows_of(
            each for each in near.differences if not (by_backend and _follows_from_backend(each))
        ),
        fields=len(near.differences),
        unusable=reason_in_words(near.unusable or ""),
    )


def _follows_from_backend(difference: Mapping[str, Any]) -> bool:
    """Each backend has libraries and options of its own."""
    field = difference["field"]
    if field.startswith("backend."):
        return bool(field != "backend.name")
    return "." not in field and NOT_SET in (difference["mine"], difference["theirs"])
