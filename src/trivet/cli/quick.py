"""Reading the options of ``trivet exec`` without the parser, whose import takes the longest of all.

Whatever is unusual, wrong, or a question is left to the parser: so there is one place that explains
options and refuses them, and this one may know less.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from trivet.cli.guarded import WAIT, ExecOptions

VALUES = ("--input", "--ready", "--wait", "--cache-dir", "--shared", "--layer")
FLAGS = ("--json", "--quiet")
_LISTS = ("TRIVET_SHARED", "TRIVET_LAYERS", "TRIVET_DEBUG")


def read(arguments: Sequence[str], environment: Mapping[str, str]) -> ExecOptions | None:
    """What is asked for by what follows ``exec``; None where the parser has to look."""
    if any(environment.get(name) for name in _LISTS):
        return None
    given: dict[str, list[str]] = {}
    words = iter(arguments)
    for word in words:
        name, has_value, value = word.partition("=")
        if word == "--":
            return _options(given, tuple(words), environment)
        if name in FLAGS and not has_value:
            given[name] = [""]
        elif name in VALUES:
            given.setdefault(name, []).append(value if has_value else next(words, ""))
        else:
            return None
    return None


def _options(
    given: Mapping[str, list[str]], command: tuple[str, ...], environment: Mapping[str, str]
) -> ExecOptions | None:
    inputs = tuple(Path(each) for each in given.get("--input", ()))
    folder = given.get("--cache-dir", [environment.get("TRIVET_CACHE_DIR", "")])[-1]
    wait = float("nan")
    with contextlib.suppress(ValueError):
        wait = float(given.get("--wait", [str(WAIT)])[-1])
    strange = [
        not command,
        not wait >= 0,
        not all(each.exists() for each in inputs),
        any("" in given.get(name, ()) for name in VALUES),
    ]
    if any(strange):
        return None
    return ExecOptions(
        command=command,
        inputs=inputs,
        ready=given.get("--ready", [None])[-1],
        wait=wait,
        cache_dir=Path(folder) if folder else None,
        shared=tuple(given.get("--shared", ())),
        layers=tuple(Path(each) for each in given.get("--layer", ())),
        json="--json" in given,
        quiet="--quiet" in given,
    )
