"""Checks of guarded folders: what `trivet exec` would find, and why it might never find it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trivet.cli.doctor.section import Section, warning
from trivet.cli.output import counted, in_bytes
from trivet.errors import TrivetError
from trivet.plans.backend import Finding

if TYPE_CHECKING:
    from trivet.cache import Cache, StoredEntry
    from trivet.keys import Key

# What the caller of one run decides, and what that run has learnt.
_OF_ONE_RUN = ("inputs", "salts", "implementations")


def check_folders(cache: Cache) -> list[Section]:
    """A section for each framework of which a folder is kept, or whose key looks volatile."""
    from trivet.plans.folders.fingerprint import SPACE

    here = dict(_keys_here(cache))
    kept: dict[str, list[StoredEntry]] = {}
    for entry in cache.entries(SPACE):
        kept.setdefault(str(entry.key.get("framework")), []).append(entry)
    sections = []
    for name in sorted(here.keys() | kept.keys()):
        entries, key = kept.get(name, []), here.get(name)
        findings = _volatile(key, entries)
        if key is not None and entries:
            findings += _of_others(name, key, entries)
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


def _keys_here(cache: Cache) -> Iterator[tuple[str, Key]]:
    """The keys of folders of this very Python, without inputs and salts."""
    from trivet.plans.folders import KNOWN, interpreter_of
    from trivet.plans.folders.fingerprint import folder_key, present
    from trivet.plans.host import read_host
    from trivet.plans.memo import CacheMemo

    interpreter = interpreter_of([sys.executable], os.environ)
    for framework in KNOWN:
        if interpreter is None or not present(framework, interpreter):
            continue
        try:
            host = read_host(os.environ)
            yield framework.name, folder_key(framework, interpreter, host, {}, {}, CacheMemo(cache))
        except TrivetError:
            continue  # the section of its backend says so


def _volatile(key: Key | None, entries: list[StoredEntry]) -> list[Finding]:
    """Values that look as if they changed at every start, each named once."""
    from trivet.plans.volatile import volatile_factors

    found = volatile_factors({name: key[name] for name in key}) if key is not None else []
    for entry in entries:
        own = {name: entry.key[name] for name in _OF_ONE_RUN if name in entry.key}
        found += volatile_factors(own)
    return list(dict.fromkeys(found))


def _of_others(name: str, key: Key, entries: list[StoredEntry]) -> list[Finding]:
    """Folders that no run of this Python on this host can find."""
    least = min((_fields(key, each.key) for each in entries), key=len)
    if not least:
        return []
    return [
        warning(
            "other-folder",
            f"no kept folder of {name} is for this Python on this host; the nearest differs in "
            f"{', '.join(least[:4])}{', …' * (len(least) > 4)}",
            "right after an upgrade, or in another environment than that of the program; "
            "'trivet exec --explain -- COMMAND' shows both values",
        )
    ]


def _fields(mine: Key, theirs: Key) -> list[str]:
    names = (each.name for each in mine.diff(theirs))
    return [each for each in names if each.partition(".")[0] not in _OF_ONE_RUN]
