"""Checks of guarded folders: what `trivet exec` would find, and why it might never find it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from trivet.cli.doctor.section import Section, warning
from trivet.cli.output import counted, in_bytes
from trivet.errors import TrivetError
from trivet.plans.backend import Finding

if TYPE_CHECKING:
    from trivet.cache import Cache, StoredEntry
    from trivet.keys import Key
    from trivet.plans.folders import CacheFolder, Interpreter

# What the caller of one run decides, and what that run has learnt.
_OF_ONE_RUN = ("arguments", "order_of_arguments", "inputs", "salts", "implementations")


def check_folders(cache: Cache) -> list[Section]:
    """A section for each framework of which a folder is kept, or whose key looks volatile."""
    from trivet.plans.folders.fingerprint import SPACE

    kept: dict[str, list[StoredEntry]] = {}
    for entry in cache.entries(SPACE):
        kept.setdefault(str(entry.key.get("framework")), []).append(entry)
    sections = []
    here = {each.name: each for each in _present()}
    for name in sorted(here.keys() | kept.keys()):
        entries, findings = kept.get(name, []), _volatile_runs(kept.get(name, []))
        if name in here:
            findings = [*_volatile_here(here[name]), *findings]
            findings += _of_others(cache, here[name], entries)
        if entries or findings:
            size = in_bytes(sum(each.descriptor.size for each in entries))
            sections.append(
                Section(
                    name=f"exec {name}",
                    summary=f"{counted(len(entries), 'folder')} kept, {size}",
                    findings=findings,
                )
            )
    return sections


def _present() -> list[CacheFolder]:
    """The frameworks that programs of this Python could use."""
    from trivet.plans.folders import KNOWN
    from trivet.plans.folders.fingerprint import present

    interpreter = _this_python()
    return [each for each in KNOWN if interpreter is not None and present(each, interpreter)]


def _this_python() -> Interpreter | None:
    from trivet.plans.folders import interpreter_of

    return interpreter_of([sys.executable], os.environ)


def _volatile_here(framework: CacheFolder) -> list[Finding]:
    from trivet.plans.environment import significant
    from trivet.plans.volatile import volatile_factors

    read = significant(os.environ, framework.environment)
    return volatile_factors({"environment": read, "settings": dict(framework.settings)})


def _volatile_runs(entries: list[StoredEntry]) -> list[Finding]:
    """Values of single runs that look as if they changed at every start, each named once."""
    from trivet.plans.volatile import volatile_factors

    found: list[Finding] = []
    for entry in entries:
        own = {name: entry.key[name] for name in _OF_ONE_RUN if name in entry.key}
        found += volatile_factors(own)
    return list(dict.fromkeys(found))


def _of_others(cache: Cache, framework: CacheFolder, entries: list[StoredEntry]) -> list[Finding]:
    """Whether no run of this Python on this host can find any of the folders."""
    from trivet.plans.folders.fingerprint import folder_key
    from trivet.plans.host import read_host
    from trivet.plans.memo import CacheMemo

    interpreter = _this_python()
    if not entries or interpreter is None:
        return []
    try:
        host = read_host(os.environ)
        key = folder_key(framework, interpreter, host, {}, {}, CacheMemo(cache))
    except TrivetError:
        return []  # the section of its backend says so
    least = min((_fields(key, each.key) for each in entries), key=len)
    if not least:
        return []
    return [
        warning(
            "other-folder",
            f"no kept folder of {framework.name} is for this Python on this host; the nearest "
            f"differs in {', '.join(least[:4])}{', …' * (len(least) > 4)}",
            "right after an upgrade, or in another environment than that of the program; "
            "'trivet exec --explain -- COMMAND' shows both values",
        )
    ]


def _fields(mine: Key, theirs: Key) -> list[str]:
    names = (each.name for each in mine.diff(theirs))
    return [each for each in names if each.partition(".")[0] not in _OF_ONE_RUN]
