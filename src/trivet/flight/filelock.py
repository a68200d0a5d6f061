"""Single-flight across the processes of one machine: locks that die with their holder.

``flock`` is released by the kernel when the last descriptor of its open file is closed, however the
process ended. A lock file is unlinked by its holder before the release, so that the folder stays
small; who locks an unlinked file notices by comparing inodes and starts over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from trivet.forks import in_children


class FileLock:
    """A held lock."""

    __slots__ = ("__weakref__", "_fd", "_path")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        _held.add(self)

    def release(self) -> None:
        """Let others have it. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        try:
            os.unlink(self._path)
        except OSError:
            pass  # the folder was wiped or became read-only; closing releases all the same
        finally:
            os.close(fd)  # also after an interrupt: nobody else would close it

    def _close_in_child(self) -> None:
        # The child shares the open file: while it had the descriptor, the lock would outlive the
        # parent. Closing does not release the parent's lock; unlinking would break it.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.release()


class FileLocks:
    """Locks named by digest, as files in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = str(folder)

    def try_lock(self, digest: bytes, *, create: bool = True) -> FileLock | None:
        """The lock if it is free, None if somebody holds it.

        Raises OSError when the folder can't be written, and FileNotFoundError where ``create`` is
        False and nobody left a lock file.
        """
        path = f"{self._folder}/{digest.hex()}"
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        while True:
            fd = self._open(path, flags)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            except BaseException:
                os.close(fd)
                raise
            if _still_there(fd, path):
                return FileLock(fd, path)
            os.close(fd)

    def lock_new(self, digest: bytes) -> FileLock:
        """A lock on a name that nobody used before; the file appears already locked.

        Between making a file and locking it somebody else could lock it. Raises OSError when the
        folder can't be written.
        """
        path, unseen = f"{self._folder}/{digest.hex()}", f"{self._folder}/.{digest.hex()}"
        fd = self._open(unseen, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(unseen, path)
        except BaseException:
            os.close(fd)
            raise
        return FileLock(fd, path)

    def _open(self, path: str, flags: int) -> int:
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            # Wiped with the cache's folder, which others have made anew without it.
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
            return os.open(path, flags, 0o600)


def _still_there(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


_held = in_children(FileLock._close_in_child)
