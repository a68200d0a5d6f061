"""Which files the folders of a command depend on, as earlier runs have shown."""

from __future__ import annotations

import math
import os
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

import msgspec

from trivet.cache import Cache, Hit
from trivet.errors import CorruptEntry
from trivet.keys import Key
from trivet.plans.folders.growing import Copy, grow
from trivet.plans.folders.interpreter import Interpreter
from trivet.plans.folders.snapshot import StillChanging

SPACE = "folder-implementations/3"
_UPDATE = "folder-implementations-update/1"  # of the leases under which names are replaced
_FILE = "names.json"


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Names for files that are the same on hosts where the program lies elsewhere.

    Attributes:
        marks: mark to the folder that it stands for here, the more special first.
    """

    marks: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, interpreter: Interpreter, cwd: str) -> Places:
        """Those of a program that runs in ``cwd``."""
        found = {"{cwd}": cwd, "{prefix}": interpreter.prefix, "{base}": interpreter.base}
        return cls(marks=tuple(sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))))

    def name(self, path: str) -> str:
        """What ``path`` is called on every host."""
        for mark, place in self.marks:
            if path.startswith(place.rstrip(os.sep) + os.sep):
                return mark + path[len(place.rstrip(os.sep)) :]
        return path

    def path(self, name: str) -> str:
        """Where the file of this name is here."""
        for mark, place in self.marks:
            if name.startswith(mark):
                return place.rstrip(os.sep) + name.removeprefix(mark)
        return name


class Learned:
    """Names of files, by the folder's other dependencies and by command.

    By command, since arguments may decide which operators a program takes. A command that never ran
    is taken to load what others load that is installed, and to bring nothing itself.
    """

    def __init__(self, cache: Cache, command: tuple[bytes, ...]) -> None:
        self._cache = cache
        self._command = command

    def own(self, base: Key) -> list[str]:
        """All that the program brought itself when it last ran, sorted."""
        return self._read(self._by_command(base)) or []

    def installed(self, base: Key, own: Set[str]) -> list[str]:
        """What it loads that packages installed, where it brings ``own`` itself; sorted."""
        for key in (self._by_own(base, own), self._by_all(base)):
            found = self._read(key)
            if found is not None:
                return found
        return []

    def learn(
        self, base: Key, own: Set[str], installed: Set[str], until: float = math.inf
    ) -> list[str]:
        """That it brought ``own`` and nothing else, and loaded what is ``installed``; returns all
        that is known to be loaded with it. ``until`` is as for `grow`.

        Raises `ValueError` for a name that is no Unicode.
        """
        installed = {*self.installed(base, own), *installed}
        self._write(self._by_all(base), installed, until)
        found = self._write(self._by_own(base, own), installed, until)
        self._write(self._by_command(base), own, until, replace=True)
        return found

    def _by_command(self, base: Key) -> Key:
        return Key(SPACE, {"folder": base.digest, "command": self._command})

    def _by_own(self, base: Key, own: Set[str]) -> Key:
        return self._by_command(base).replace(own=tuple(sorted(own)))

    def _by_all(self, base: Key) -> Key:
        return Key(SPACE, {"folder": base.digest})

    def _write(
        self, key: Key, names: Set[str], until: float, *, replace: bool = False
    ) -> list[str]:
        """The names, with those that are there if they are not to be replaced.

        What is there is never removed before: a reader that found nothing would take a folder for
        independent of what it depends on.
        """
        there = self._read(key)
        if there is not None and (names == {*there} or (names < {*there} and not replace)):
            return there
        union = {*names}

        def fill(staging: Path, others: list[Copy]) -> bool:
            # In a file, which no process keeps in its memory while others add to it.
            for copy in () if replace else others:
                copy(staging, lambda name: name == _FILE)
                union.update(_names_in(staging))
            (staging / _FILE).write_bytes(msgspec.json.encode(sorted(union)))
            return True

        if not grow(self._cache, key, Key(_UPDATE, {"names": key.digest}), fill, until):
            raise StillChanging("another run is writing down the same")
        return sorted(union)

    def _read(self, key: Key) -> list[str] | None:
        found = self._cache.get_files(key)
        if not isinstance(found, Hit):
            return None
        try:
            return _decode(found.value.verify() / _FILE)
        except (CorruptEntry, msgspec.MsgspecError) as error:
            self._cache.quarantine_files(found.value, str(error))
        except FileNotFoundError:
            pass  # replaced meanwhile, or evicted
        return None


def _names_in(folder: Path) -> list[str]:
    """The names in a copy; none where it could not be had, or is of a later release."""
    with suppress(FileNotFoundError, msgspec.MsgspecError):
        return _decode(folder / _FILE)
    return []


def _decode(path: Path) -> list[str]:
    return msgspec.json.decode(path.read_bytes(), type=list[str])
