"""The load journal: which artifacts are being loaded, by processes that are alive.

A mark is a file that its process holds locked. The lock dies with the process, the file does not:
an unlocked mark means that a process died while it was loading.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from trivet.flight import FileLocks

_DIGEST_SIZE = 32


class LoadJournal:
    """Marks in one folder, named ``<digest>-<nonce>``."""

    def __init__(self, folder: Path) -> None:
        self._locks = FileLocks(folder)
        self._folder = str(folder)

    @contextlib.contextmanager
    def mark(self, digest: bytes) -> Iterator[None]:
        """Hold a mark for ``digest``. Where the folder can't be written there is none."""
        try:
            # A mark that could be seen unlocked would be taken for that of a dead process.
            lock = self._locks.lock_new(digest + b"-" + os.urandom(8))
        except OSError:
            lock = None
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def crashed(self) -> list[bytes]:
        """Digests that a process died with while loading them; their marks stay."""
        found = set()
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        for name in names:
            try:
                fd = os.open(f"{self._folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                # Shared: two who look at the same time must not take each other for the holder.
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                found.add(bytes.fromhex(name)[:_DIGEST_SIZE])
            except (BlockingIOError, ValueError):
                continue
            finally:
                os.close(fd)
        return sorted(found)

    def take_crash(self, digest: bytes) -> bool:
        """Whether some process died while loading ``digest``; its marks are removed."""
        prefix = digest.hex()
        crashed = False
        try:
            names = os.listdir(self._folder)
        except OSError:
            return False
        for name in names:
            if not name.startswith(prefix):
                continue
            try:
                lock = self._locks.try_lock(bytes.fromhex(name), create=False)
            except (OSError, ValueError):
                continue
            if lock is not None:
                lock.release()
                crashed = True
        return crashed
