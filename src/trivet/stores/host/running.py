"""Who is using the folder: one locked file per process, with a mark for each operation under way.

The lock dies with the process, so a file whose lock is free belongs to a dead one. Its marks then
say whether it died inside an index operation: the only time when a damaged index can have been the
cause.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from trivet.stores.host.disk import remove, write_all
from trivet.stores.host.layout import Layout

SLOT_SIZE = 4096
CHECK_MARK = SLOT_SIZE - 1  # the mark that `CHECKING` is written to; the others are operations'
IDLE, INSIDE, CHECKING = 0, 1, 2


class Slot:
    """This process's file in ``running/``.

    Attributes:
        name: eight hexadecimal digits; the first part of the names of everything this process
            makes before it is published.
        marks: shared bytes; index by operation, value `IDLE`, `INSIDE` or `CHECKING`.
    """

    def __init__(self, layout: Layout) -> None:
        """Raises `OSError`. Call it with the folder's lock held, so that nobody sweeps it."""
        self.name = os.urandom(4).hex()
        self.path: Path = layout.running / self.name
        self._descriptor = os.open(
            self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        try:
            write_all(self._descriptor, bytes(SLOT_SIZE))
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.marks = mmap.mmap(self._descriptor, SLOT_SIZE)
        except BaseException:
            self.release()
            raise

    def present(self) -> bool:
        """Whether the file is still where others look for it."""
        try:
            here, held = os.stat(self.path), os.fstat(self._descriptor)
        except OSError:
            return False
        return (here.st_dev, here.st_ino) == (held.st_dev, held.st_ino)

    def release(self) -> None:
        """Remove the file and let go of the lock."""
        with suppress(OSError):
            os.unlink(self.path)
        self.forget()

    def forget(self) -> None:
        """Close this process's handle only: what a forked child does with its parent's slot."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Swept(msgspec.Struct, frozen=True):
    """Names of the living processes' slots, and the strongest mark that a dead one left."""

    alive: frozenset[str]
    mark: int


def look(layout: Layout, *, bury: bool) -> Swept:
    """Who is alive. ``bury`` removes the files of dead processes (hold the folder's lock)."""
    alive, mark = set(), IDLE
    for path in sorted(layout.running.iterdir()):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alive.add(path.name)
        else:
            mark = max(mark, *os.read(descriptor, SLOT_SIZE), IDLE)
            if bury:
                remove(path)
        finally:
            os.close(descriptor)
    return Swept(frozenset(alive), mark)


def sweep_staging(layout: Layout, alive: frozenset[str]) -> int:
    """Remove what dead processes left in ``staging/``; returns how many things."""
    count = 0
    for path in layout.staging.iterdir():
        if path.name.partition(".")[0] not in alive:
            remove(path)
            count += 1
    return count
