"""``trivet exec --explain``: what a command would find, and what differs where it finds nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trivet.cli.differences import FieldRow, described, print_nearest, rows_of
from trivet.cli.output import Output, Span, at_time, counted, in_bytes
from trivet.cli.words import NOT_SET, reason_in_words
from trivet.errors import TrivetError

if TYPE_CHECKING:
    from trivet.cache import Cache
    from trivet.cli.guarded import ExecOptions
    from trivet.plans.folders.explain import FolderLookup


def explain_command(out: Output, cache: Cache, options: ExecOptions) -> bool:
    """Say it; True when every framework of which a folder is kept would find its own.

    A framework of which nothing is kept may be one that the command does not use.

    Raises `TrivetError` where there is no Python whose frameworks could be guarded.
    """
    from trivet.plans.folders import KNOWN, declared, interpreter_of
    from trivet.plans.folders.explain import explain

    command = options.command
    interpreter = interpreter_of(command, os.environ)
    if interpreter is None:
        raise TrivetError(
            f"{command[0]} runs in no Python, and there is none beside it: nothing is guarded",
            hint="name the interpreter: trivet exec -- python3 ...",
        )
    with out.progress("looking"):
        found = explain(
            cache,
            (*KNOWN, *map(declared, options.folders)),
            interpreter,
            os.environ,
            command=command,
            inputs=options.inputs,
            salts=options.salts,
        )
    verdicts = [_verdict(each) for each in found]
    kept = [each for each in verdicts if each["hit"] or each["nearest"]]
    hit = bool(kept) and all(each["hit"] for each in kept)
    if out.json:
        out.document({"python": interpreter.executable, "hit": hit, "folders": verdicts})
    else:
        _print(out, verdicts)
    return hit


def _verdict(lookup: FolderLookup) -> dict[str, Any]:
    from trivet.cache import Hit, Miss
    from trivet.plans.folders.attributes import NAME

    found, near = lookup.found, lookup.nearest
    told: dict[str, Any] = {
        "framework": lookup.framework,
        "key": lookup.key.digest.hex() if lookup.key is not None else "",
        "hit": isinstance(found, Hit),
        "files": sum(each.name != NAME for each in found.value.manifest.files)
        if isinstance(found, Hit)
        else 0,
        "bytes": found.value.manifest.size if isinstance(found, Hit) else 0,
        "reason": str(found.reason) if isinstance(found, Miss) else "",
        "detail": lookup.trouble or (found.detail if isinstance(found, Miss) else ""),
        "nearest": None,
    }
    if near is not None:
        told["nearest"] = {
            "key": near.entry.key.digest.hex(),
            "created": near.entry.descriptor.created,
            "unusable": near.entry.invalid,
            "differences": described(near.differences),
        }
    return told


def _print(out: Output, verdicts: Sequence[Mapping[str, Any]]) -> None:
    if not verdicts:
        out.line("none of the frameworks whose caches are guarded is installed there")
    for each in verdicts:
        name = each["framework"]
        if each["hit"]:
            size = f"{counted(each['files'], 'file')}, {in_bytes(each['bytes'])}"
            out.line((Span("would hit   ", "bold green"), f"{name}  {each['key'][:12]}  {size}"))
            continue
        if not each["key"]:
            out.line((Span("left alone  ", "bold yellow"), f"{name}: {each['detail']}"))
            continue
        if each["nearest"] is None and each["reason"] == "absent":
            out.line((Span("nothing     ", "dim"), f"of {name} is kept"))
            continue
        out.line((Span("would miss  ", "bold yellow"), name))
        absent = each["reason"] == "absent"
        out.line("  no folder is kept under this key" if absent else f"  {_reason(each['reason'])}")
        if each["detail"]:
            out.line(f"  {each['detail']}")
        if each["nearest"] is not None:
            _print_nearest(out, each["nearest"])


def _reason(reason: str) -> str:
    return reason_in_words(reason).replace("the stored plan", "the kept folder")


def _print_nearest(out: Output, near: Mapping[str, Any]) -> None:
    kept = f"{near['key'][:12]} of {at_time(near['created'])}"
    print_nearest(
        out,
        "kept",
        kept,
        _condensed(near["differences"]),
        fields=len(near["differences"]),
        unusable=_reason(near["unusable"] or ""),
    )


def _condensed(differences: Sequence[Mapping[str, Any]]) -> list[FieldRow]:
    """Rows; files that this command was not yet seen to use are only counted."""
    seen = [each for each in differences if not _is_unseen(each)]
    rows = rows_of(seen)
    if len(seen) < len(differences):
        unseen = counted(len(differences) - len(seen), "file")
        words = "which this command was not yet seen to take operators from"
        rows.append(("implementations", NOT_SET, unseen, words))
    return rows


def _is_unseen(difference: Mapping[str, Any]) -> bool:
    return bool(
        difference["field"].startswith("implementations.") and difference["mine"] == NOT_SET
    )
