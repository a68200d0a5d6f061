"""Values in a key that look as if they changed from start to start: the doctor asks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from trivet.keys import FieldValue
from trivet.plans.backend import Finding, Severity

# Forms of values that differ from one start, pod or host to the next. Process ids are not looked
# for: a size or a number of threads looks just the same.
_VOLATILE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("an IP address", re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")),
    ("an IP address", re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){3,7}:?[0-9a-f]{0,4}(?![\w:])")),
    ("a UUID", re.compile(r"(?i)(?<!\w)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?!\w)")),
    ("a point in time", re.compile(r"(?<!\d)20\d\d-[01]\d-[0-3]\d[T ][0-2]\d[:h]?[0-5]\d")),
    ("a point in time", re.compile(r"(?<![\w.])1[6-9]\d{8}(?:\d{3})?(?:\.\d+)?(?![\w])")),
    ("a temporary path", re.compile(r"(?:^|[=:;,\s])/(?:tmp|var/tmp|dev/shm|run/user)/")),
    ("a path of one process", re.compile(r"/proc/(?:self|\d+)/")),
    (
        "a pod's name",
        re.compile(r"(?<!\w)[a-z][a-z0-9-]*-[a-z0-9]{8,10}-[bcdf-hj-np-tv-xz2-9]{5}(?!\w)"),
    ),
)


def volatile_factors(
    fields: Mapping[str, FieldValue], *, host_name: str | None = None
) -> list[Finding]:
    """A finding for each value in ``fields`` that looks as if it changed from start to start.

    Such a value is right in the key (nobody said that nothing depends on it), but then nothing is
    ever found again. ``host_name`` is this machine's by default.
    """
    host = os.uname().nodename if host_name is None else host_name
    findings = []
    for name, text in _texts(fields, ""):
        what = _looks_like(text, host)
        if what:
            findings.append(
                Finding(
                    severity=Severity.WARNING,
                    code="volatile-factor",
                    message=f"{name} is part of the key and holds what looks like {what}: {text!r}",
                    hint="a value that changes with every start makes every start miss; "
                    "unset it or give it a fixed value",
                )
            )
    return findings


def _looks_like(text: str, host: str) -> str | None:
    # A host called "cpu" or "dev" would be found in half of all options.
    if len(host) > 4 and re.search(rf"(?<![\w-]){re.escape(host)}(?![\w-])", text):
        return "this host's name"
    for what, pattern in _VOLATILE:
        if pattern.search(text):
            return what
    return None


def _texts(value: FieldValue, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if name.startswith("/"):  # a file that is known by its place
                yield path, name
            yield from _texts(each, f"{path}.{name}" if path else name)
    elif isinstance(value, tuple | list):
        for index, each in enumerate(value):
            yield from _texts(each, f"{path}[{index}]")
