"""The files of an artifact: recorded when they are made, checked before they are used."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from trivet.entries import FileRecord
from trivet.errors import CorruptEntry

# One core is left to what goes on beside a verification, such as importing the framework. Not
# blake3's AUTO: that pool is shared by the process, and a forked child hangs in it. With a number,
# each hasher has its own.
_HASH_THREADS = max(1, min(4, (os.cpu_count() or 2) - 1))
_FICLONE = 0x40049409  # ioctl_ficlone(2)
# Errors that speak of the file; others, such as too few descriptors, speak of this process.
_ABOUT_THE_FILE = frozenset({errno.EIO, errno.ELOOP, errno.ENOENT, errno.ENOTDIR})


def record_files(folder: Path) -> Iterator[FileRecord]:
    """A record of every file below ``folder``, sorted by name. Raises `OSError`."""
    found = [Path(parent) / name for parent, _, names in os.walk(folder) for name in names]
    for path in sorted(found, key=lambda each: each.relative_to(folder).as_posix()):
        name, size = path.relative_to(folder).as_posix(), path.stat().st_size
        yield FileRecord(name, size, _digest(path))


def check_file(path: Path, record: FileRecord) -> None:
    """Compare the file at ``path`` with its record.

    Raises `CorruptEntry` when it is missing, no regular file, of another size or other content, and
    `OSError` when this process can't read it at the moment.
    """
    try:
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode):
            raise CorruptEntry(f"{record.name} is not a regular file")
        if facts.st_size != record.size:
            raise CorruptEntry(f"{record.name} has {facts.st_size} bytes, not {record.size}")
        digest = _digest(path)
    except OSError as error:
        # The second test is for blake3's own errors, which have no number.
        if error.errno in _ABOUT_THE_FILE or isinstance(error, FileNotFoundError):
            raise CorruptEntry(f"{record.name} can't be read: {error}") from error
        raise
    if digest != record.blake3:
        raise CorruptEntry(f"{record.name} is not what was stored")


def copy_file(path: Path, record: FileRecord, target: Path) -> None:
    """Copy the file at ``path`` to ``target``, and hold what arrived there against its record.

    Raises as `check_file`, and `OSError` where ``target`` can't be written.
    """
    try:
        clone_file(path, target)
    except FileNotFoundError as error:
        raise CorruptEntry(f"{record.name} can't be read: {error}") from error
    check_file(target, record)


def clone_file(path: Path, target: Path) -> None:
    """Copy a file's bytes; where the file system can, by sharing its blocks until one is written.

    Folders on the way are made. Raises `OSError`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "rb", opener=_open) as source, target.open("wb") as copy:
        try:
            fcntl.ioctl(copy.fileno(), _FICLONE, source.fileno())
        except OSError:
            while os.sendfile(copy.fileno(), source.fileno(), None, 1 << 30):
                pass


def _open(path: str, flags: int) -> int:
    """Not waiting for somebody to write, should it be a pipe by now."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _digest(path: Path) -> bytes:
    return blake3(max_threads=_HASH_THREADS).update_mmap(path).digest()
