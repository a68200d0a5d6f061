"""What a host knew when it first saw a bundle: notes in its folder that never change.

A note that is lost would be made anew, with later epochs, and bring back what was invalidated in
between: it is durable before it is used, and one that is damaged stays so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from blake3 import blake3
from xxhash import xxh3_64_digest

from trivet.errors import StoreError
from trivet.stores.host.disk import locked, write_file

Seen = Mapping[str, int]

_decode = msgspec.msgpack.Decoder(dict[str, int]).decode


class Sightings:
    """The notes in one folder; in this process alone where there is none to be written."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[str, Seen | None] = {}

    def seen(self, name: str, look: Callable[[], Seen | None]) -> Seen | None:
        """The note called ``name``: made now from ``look``, if nobody made it before.

        None when it is damaged or can't be read now, or ``look`` says nothing, which is then not
        noted.
        """
        if name in self._known:
            return self._known[name]
        found = self._read_or_make(name, look)
        if found is not None or self.is_damaged(name):
            self._known[name] = found
        return found

    def is_damaged(self, name: str) -> bool:
        """Whether there is a note, and it is not what was written.

        What only this process can't read at the moment, having no descriptor left, is not damaged.
        """
        path = self._path(name)
        try:
            return path is not None and _parsed(path.read_bytes()) is None
        except OSError:
            return False

    def _read_or_make(self, name: str, look: Callable[[], Seen | None]) -> Seen | None:
        path = self._path(name)
        if path is None:
            return look()
        if path.exists():
            return _read(path)
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with locked(path.parent / "lock"):
                if path.exists():
                    return _read(path)
                found = look()
                if found is not None:
                    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
                    write_file(path, _encode(found), part)
                return found
        except (OSError, StoreError):
            return look()  # a folder that can't be written

    def _path(self, name: str) -> Path | None:
        return None if self._folder is None else self._folder / blake3(name.encode()).hexdigest()


def _encode(seen: Seen) -> bytes:
    raw = msgspec.msgpack.encode(dict(seen))
    return xxh3_64_digest(raw) + raw


def _read(path: Path) -> Seen | None:
    try:
        return _parsed(path.read_bytes())
    except OSError:
        return None


def _parsed(raw: bytes) -> Seen | None:
    try:
        return _decode(raw[8:]) if xxh3_64_digest(raw[8:]) == raw[:8] else None
    except msgspec.MsgspecError:
        return None
