"""`Layer`: the entries of installed bundles, read where they lie."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trivet import log
from trivet.entries import HEAD_SIZE, head_length
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreError, StoreUnavailable
from trivet.stores.host.disk import map_file, read_prefix
from trivet.stores.layers.layout import Layout, require_safe_layer

_SMALL = 64 << 10
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_Stamp = tuple[int, int, int]


class Found(NamedTuple):
    """An entry: which bundle it came with, its sealed bytes, and of an artifact, its files."""

    bundle: str
    sealed: bytes | memoryview
    files: Path


class Layer:
    """A folder made by `install`. Reads only, and judges nothing, as stores do.

    What is installed or removed while it is open is noticed at the next look.
    """

    def __init__(self, root: Path) -> None:
        """Raises `StoreUnavailable` when there is no layer, `UnsafeFolder` when others than this
        user and root could change it."""
        self.root = root
        self._layout = Layout(root)
        self._lock = threading.Lock()
        self._stamp: _Stamp | None = None
        self._bundles: tuple[str, ...] = ()
        try:
            require_safe_layer(root)
            if not self.bundles():
                raise StoreUnavailable(
                    f"no bundle is installed in {root}",
                    hint="'trivet bundle install FILE FOLDER' does that",
                )
        except OSError as error:
            raise StoreUnavailable(f"the layer {root} can't be read: {error}") from error

    def bundles(self) -> tuple[str, ...]:
        """The ids of the installed bundles, the newest first. Raises `StoreError` and OSError."""
        stamp = _stamp(self._layout.list)
        if stamp != self._stamp:
            with self._lock:
                self._bundles = self._layout.read_list()
                self._stamp = stamp
        return self._bundles

    def find(self, digest: bytes, bundles: tuple[str, ...]) -> Found | None:
        """The entry as the first of ``bundles`` has it that has one. Raises OSError."""
        name = digest.hex()
        for bundle in bundles:
            folder = self._layout.bundles / bundle
            sealed = _read(folder / "entries" / name)
            if sealed is not None:
                return Found(bundle, sealed, folder / "files" / name)
        return None

    def heads(self, bundle: str) -> Iterator[tuple[bytes, bytes]]:
        """Digest and the head of the sealed bytes of each entry that can be read.

        Raises OSError when nobody can tell which there are.
        """
        folder = self._layout.bundles / bundle / "entries"
        for name in sorted(os.listdir(folder)):
            with suppress(OSError, ValueError, CorruptEntry, IncompatibleEntry):
                yield bytes.fromhex(name), _head(folder / name)

    def __repr__(self) -> str:
        return f"<Layer {self.root}>"


def open_layers(folders: Sequence[str | Path], *, strict: bool) -> tuple[list[Layer], list[str]]:
    """The layers in ``folders``, and what is wrong with those that can't be used.

    Raises `StoreError` for the first of those when ``strict``.
    """
    opened: list[Layer] = []
    unusable: list[str] = []
    for each in folders:
        try:
            opened.append(Layer(Path(each)))
        except StoreError as error:
            if strict:
                raise
            log.warning("working without the layer %s: %s", each, error)
            unusable.append(str(error))
    return opened, unusable


def _stamp(path: Path) -> _Stamp:
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return (0, 0, 0)
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _read(path: Path) -> bytes | memoryview | None:
    try:
        size = os.stat(path, follow_symlinks=False).st_size
        if size > _SMALL:
            return map_file(path, size)
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def _head(path: Path) -> bytes:
    head = read_prefix(path, _SMALL)
    if len(head) >= HEAD_SIZE and head_length(head) > len(head):
        head = read_prefix(path, head_length(head))
    return head
