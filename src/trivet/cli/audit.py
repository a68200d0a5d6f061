"""``trivet audit``: what the installed frameworks' own caches do where it matters."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trivet.cli.app import FAILED, command
from trivet.cli.options import AsJson
from trivet.cli.output import Column, Output, Span, counted, in_seconds
from trivet.errors import TrivetError

if TYPE_CHECKING:
    from trivet.audit import Finding, Probe


@command
def audit(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FRAMEWORK|PROBE]...",
            show_default=False,
            help="Frameworks (onnxruntime, openvino, jax, torch) or single probes; by default all "
            "probes of the installed frameworks.",
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the probes and run none.")] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Also exit with 1 if a framework's own cache fails."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Test the installed frameworks' own caches.

    Each probe sets a scene in a temporary folder (other weights, a flipped bit, another
    processor), runs a framework's own cache in it, and the same program guarded by Trivet. It
    needs no network, touches no cache of yours and leaves nothing behind. PyTorch takes minutes.

    Exits with 1 when a guarded run was not right.
    """
    from trivet.audit import FRAMEWORKS, probes
    from trivet.audit.runner import is_installed

    out = Output(json=json)
    try:
        wanted = probes(names or [each for each in FRAMEWORKS if list_ or is_installed(each)])
    except TrivetError as error:
        raise typer.BadParameter(str(error)) from None
    if list_:
        _list(out, wanted)
        return
    found = _try_all(out, wanted)
    out.document({"findings": found, "summary": _summary(found)}) if json else _print(out, found)
    bad = [each for each in found if each.guarded in ("wrong", "no better")]
    if bad or (strict and any(each.own in _BAD for each in found)):
        raise typer.Exit(FAILED)


def _try_all(out: Output, wanted: Sequence[Probe]) -> list[Finding]:
    from trivet.audit import audit as run

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)  # by way of all that cleans up

    before = {each: signal.signal(each, leave) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with out.progress("auditing") as step:
            numbers = iter(range(len(wanted)))
            return list(run(wanted, step=lambda probe: step(next(numbers), len(wanted), probe.id)))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_BAD = ("wrong", "unverified", "fails", "not healed", "wasteful")
_STYLES = {
    "wrong": "bold red",
    "unverified": "yellow",
    "fails": "red",
    "not healed": "yellow",
    "wasteful": "yellow",
    "not reproduced": "green",
    "right": "green",
    "no better": "red",
    "not run": "dim",
}


def _list(out: Output, wanted: Sequence[Probe]) -> None:
    if out.json:
        names = ("id", "framework", "title", "page")
        out.document({"probes": [{name: getattr(each, name) for name in names} for each in wanted]})
        return
    out.table(
        [Column("probe"), Column("what is tried", fold=True)],
        [(each.id, each.title) for each in wanted],
    )


def _print(out: Output, found: Sequence[Finding]) -> None:
    out.table(
        [
            Column("finding"),
            Column("own cache"),
            Column("guarded"),
            Column("time", right=True, optional=True),
            Column("page", optional=True),
        ],
        [
            (
                each.id,
                Span(each.own, _STYLES[each.own]),
                Span(each.guarded, _STYLES[each.guarded]),
                in_seconds(each.seconds),
                each.page,
            )
            for each in found
        ],
    )
    for each in found:
        out.line()
        out.line(Span(f"{each.framework} {each.version}: {each.title}".replace(" :", ":"), "bold"))
        if {str(each.own), str(each.guarded)} == {"not run"}:
            out.line(f"  not run: {each.own_evidence}")
            continue
        out.fields([("  own cache", each.own_evidence), ("  guarded", each.guarded_evidence)])
    summary = _summary(found)
    out.line()
    out.line("What happens, why, and how to guard: docs/explanation/audit/FINDING.md")
    out.line(
        f"{counted(len(found), 'finding')}: own caches wrong {summary['own_wrong']}, failing "
        f"otherwise {summary['own_otherwise']}, not reproduced {summary['not_reproduced']}, "
        f"not run {summary['not_run']}; guarded right {summary['guarded_right']}, "
        f"no better {summary['guarded_no_better']}"
    )
    out.line(f"wrong results over the whole audit list when guarded: {summary['guarded_wrong']}")


def _summary(found: Sequence[Finding]) -> dict[str, Any]:
    own = [str(each.own) for each in found]
    guarded = [str(each.guarded) for each in found]
    return {
        "own_wrong": own.count("wrong"),
        "own_otherwise": sum(each in _BAD[1:] for each in own),
        "not_reproduced": own.count("not reproduced"),
        "not_run": own.count("not run"),
        "guarded_right": guarded.count("right"),
        "guarded_no_better": guarded.count("no better"),
        "guarded_wrong": guarded.count("wrong"),
    }
