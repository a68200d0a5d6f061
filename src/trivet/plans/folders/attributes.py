"""Executable bits and symbolic links.

An artifact keeps contents alone, so this is one more file of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from trivet.errors import CorruptEntry, TrivetError
from trivet.plans.folders.snapshot import is_transient

NAME = "@trivet.json"
_RUN = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """Those of one folder, by path below it: executable files, and where links lead."""

    runnable: tuple[str, ...] = ()
    links: Mapping[str, str] = {}

    def of(self, files: set[str]) -> Attributes:
        """Without the files that are not among ``files``."""
        return msgspec.structs.replace(
            self, runnable=tuple(each for each in self.runnable if each in files)
        )

    def with_others(self, others: Attributes, mine: set[str]) -> Attributes:
        """Together with ``others``, but for what is among ``mine``, or below a link of mine."""
        runnable = {*self.runnable, *(each for each in others.runnable if each not in mine)}
        links = {name: to for name, to in others.links.items() if name not in mine}
        return Attributes(runnable=tuple(sorted(runnable)), links={**links, **self.links})

    def present_in(self, folder: Path) -> Attributes:
        """Without files that are not in ``folder``: not all may have been copied."""
        links = {name: to for name, to in self.links.items() if (folder / to).exists()}
        runnable = tuple(each for each in self.runnable if (folder / each).is_file())
        return Attributes(runnable=runnable, links=links)


def attributes_of(folder: Path, transient: Sequence[str]) -> Attributes:
    """Raises `TrivetError` for what can't be kept, such as a link that leads out of the folder, and
    `OSError`."""
    if (folder / NAME).exists():
        raise TrivetError(f"{NAME} is a name that only the guard itself may give")
    runnable, links = [], {}
    for parent, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not is_transient(each, transient)]
        for each in [*folders, *names]:
            path = Path(parent, each)
            facts = path.lstat()
            name = path.relative_to(folder).as_posix()
            if is_transient(each, transient):
                continue
            if stat.S_ISLNK(facts.st_mode):
                links[name] = _target(folder, path)
            elif stat.S_ISREG(facts.st_mode) and facts.st_mode & stat.S_IXUSR:
                runnable.append(name)
    return Attributes(runnable=tuple(sorted(runnable)), links=dict(sorted(links.items())))


def _target(folder: Path, link: Path) -> str:
    target = os.path.normpath(link.parent / os.readlink(link))
    if not _is_inside(folder, target):
        raise TrivetError(f"{link.name} is a link that leads out of the folder, to {target}")
    return os.path.relpath(target, folder)


def _is_inside(folder: Path, path: str) -> bool:
    return path == str(folder) or path.startswith(str(folder) + os.sep)


def write_attributes(folder: Path, attributes: Attributes) -> None:
    """Put it with the files to be kept, if there is anything to say."""
    if attributes.runnable or attributes.links:
        (folder / NAME).write_bytes(msgspec.json.encode(attributes))


def take_attributes(folder: Path) -> Attributes:
    """What `write_attributes` wrote; its file is there no more. Raises `CorruptEntry`."""
    path = folder / NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Attributes)
    except FileNotFoundError:
        return Attributes()
    except msgspec.MsgspecError as error:
        raise CorruptEntry(f"{NAME} can't be read: {error}") from error
    finally:
        path.unlink(missing_ok=True)


def apply_attributes(folder: Path) -> None:
    """Make the restored files what they were. Raises `CorruptEntry` and `OSError`."""
    attributes = take_attributes(folder)
    for name in attributes.runnable:
        path = Path(os.path.normpath(folder / name))
        if not _is_inside(folder, str(path)) or not path.is_file():
            raise CorruptEntry(f"{name} is not a file in the folder")
        path.chmod(path.stat().st_mode | _RUN)
    for name, target in attributes.links.items():
        link, to = (os.path.normpath(folder / each) for each in (name, target))
        if not (_is_inside(folder, link) and _is_inside(folder, to)):
            raise CorruptEntry(f"{name} is a link that leads out of the folder")
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(os.path.relpath(to, os.path.dirname(link)), link)
