"""Copies of a folder: out of the store verified, into the store as it stands at one moment."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from trivet.errors import TrivetError
from trivet.stores.files import clone_file

_ATTEMPTS = 5


_HOLES = 1 << 30  # bytes of a file that were never written; copied, they would be


class StillChanging(TrivetError):
    """Files were written again and again while they were copied."""


def files_of(folder: Path, transient: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Name and status of every regular file below ``folder`` that is kept."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not is_transient(each, transient)]
        for name in names:
            path = Path(parent, name)
            try:
                facts = path.lstat()
            except FileNotFoundError:
                continue  # removed meanwhile: a temporary file
            if stat.S_ISREG(facts.st_mode) and not is_transient(name, transient):
                yield path.relative_to(folder).as_posix(), facts


def is_transient(name: str, globs: Sequence[str]) -> bool:
    """Whether a file or folder of this name is not kept."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


State = dict[str, tuple[int, ...]]


def state_of(folder: Path, transient: Sequence[str]) -> State:
    """What tells whether a folder changed: name to inode, size, modification time and mode."""
    return {
        name: (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_mode)
        for name, facts in files_of(folder, transient)
    }


def copy_settled(source: Path, target: Path, transient: Sequence[str]) -> State:
    """Copy ``source`` into the empty folder ``target`` as it stands at one moment.

    A file that changes while it is copied is copied again. Returns what ``source`` was then.

    Raises `StillChanging` when there is no such moment, `TrivetError` for a file that is mostly
    holes, and `OSError`.
    """
    for name, file in files_of(source, transient):
        if file.st_size - 512 * file.st_blocks > _HOLES:
            raise TrivetError(f"{name} has {file.st_size} bytes, most of which were never written")
    copied: State = {}
    for _ in range(_ATTEMPTS):
        before = state_of(source, transient)
        for name in copied.keys() - before.keys():
            (target / name).unlink(missing_ok=True)
            del copied[name]
        for name, facts in before.items():
            if copied.get(name) != facts:
                copied.pop(name, None)
                with contextlib.suppress(FileNotFoundError):  # gone, or replaced: looked at again
                    clone_file(source / name, target / name)
                    copied[name] = facts
        if copied == before == state_of(source, transient):
            return before
    raise StillChanging(f"{source} keeps changing while it is copied")
