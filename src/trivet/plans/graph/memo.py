"""A memo of graph identities, so that an unchanged model is not hashed again."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from trivet.clock import Clock, SystemClock
from trivet.errors import ModelError
from trivet.plans.graph.files import matches, source_file
from trivet.plans.graph.identity import VERSION, identify
from trivet.plans.model import GraphId, SourceFile

if TYPE_CHECKING:
    from trivet.plans.memo import Memo

_TOO_NEW = 0.05  # seconds; file times move in steps of up to 10 ms, and behind the clock
_TOO_NEW_COARSE = 2.05  # where they move in steps of seconds, as on FAT and on small ext inodes
_READINGS = 3

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(GraphId).decode


class GraphMemo:
    """`identify`, remembered by path and file status.

    A memo answers only if device, inode, size, modification time and change time of every file
    that was read are what they were; the change time can't be set back, so a file replaced under a
    preserved modification time is seen. A file that changed within 50 ms before it was read is not
    remembered: a second change in the same tick of the file system's clock would be invisible
    (the "racy" rule of git's index). Such a file is read when the tick is over, so that `unchanged`
    sees every change that comes after the reading. Where times are whole seconds, a tick is taken
    to last two.

    Two things escape it, as they escape every tool that trusts file status: writes through a
    shared writable mapping before the kernel notes them, and a system clock that is set back.
    """

    def __init__(self, memo: Memo, clock: Clock | None = None) -> None:
        self._memo = memo
        self._clock = clock or SystemClock()

    def identify(self, path: Path) -> GraphId:
        """As `trivet.plans.graph.identify`, with its errors; tens of microseconds when known.

        Of all threads and processes that ask at the same time, one reads the model.
        """
        name = str(path.absolute())
        known = self._recall(name)
        if known is not None:
            return known
        with self._memo.turn(_key_of_name(name)):
            # What is remembered must stand for the files as they are now, after the waiting.
            return self._recall(name) or self._read(path, name)

    def _read(self, path: Path, name: str) -> GraphId:
        started = self._clock.time()
        graph = self._settled(path, name)
        if all(started - each.ctime_ns / 1e9 > _tick(each.ctime_ns) for each in graph.sources):
            self._remember(graph)
        return graph

    def _settled(self, path: Path, name: str) -> GraphId:
        """Read the model when none of its files is too new."""
        with suppress(OSError, ValueError):  # `identify` says what is wrong
            self._let_settle([os.stat(name).st_ctime_ns])
        for _ in range(_READINGS):
            graph = identify(path)
            if not self._let_settle([each.ctime_ns for each in graph.sources]):
                return graph
        raise ModelError(f"{name!r} keeps changing", hint="replace model files by rename")

    def _let_settle(self, changed: list[int]) -> bool:
        """Wait until the ticks of these change times are over; False where they were."""
        now = self._clock.time()
        left = [each / 1e9 + _tick(each) - now for each in changed]
        # A time that lies further ahead is of a clock that was set back; a change now differs.
        pause = max((each for each in left if 0 < each <= 2 * _TOO_NEW_COARSE), default=0.0)
        if pause:
            self._clock.sleep(pause)
        return bool(pause)

    def _recall(self, name: str) -> GraphId | None:
        try:
            source = source_file(name, os.stat(name))
        except (OSError, ValueError, ModelError):
            return None  # `identify` says what is wrong
        value = self._memo.get(_key(source))
        if value is None:
            return None
        try:
            graph = _decode(value)
        except msgspec.MsgspecError:
            return None
        if not graph.sources or graph.sources[0] != source:
            return None
        return graph if all(matches(each) for each in graph.sources[1:]) else None

    def _remember(self, graph: GraphId) -> None:
        try:
            value = _encode(graph)
        except UnicodeEncodeError:
            return  # a path that is not Unicode has no MessagePack form
        self._memo.put(_key(graph.sources[0]), value)


def _tick(changed: int) -> float:
    """Seconds within which a second change may go unseen, for a change time in nanoseconds."""
    return _TOO_NEW if changed % 1_000_000_000 else _TOO_NEW_COARSE


def _key(source: SourceFile) -> bytes:
    parts = (
        VERSION,
        source.device,
        source.inode,
        source.size,
        source.mtime_ns,
        source.ctime_ns,
        os.fsencode(source.path),
    )
    return blake3(repr(parts).encode(), derive_key_context="trivet 2026 graph memo v1").digest()


def _key_of_name(name: str) -> bytes:
    return blake3(os.fsencode(name), derive_key_context="trivet 2026 graph turn v1").digest()
