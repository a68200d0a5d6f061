"""Files that are either whole or not there: write, sync, rename; map; discard."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trivet.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_OLD = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


def store_error(code: int | None, message: str) -> StoreError:
    """The `StoreError` for an ``errno`` value."""
    if code in _FULL:
        return StoreFull(message, hint="free some room, or lower the budget of the cache")
    if code in _DENIED:
        return StoreReadOnly(message)
    return StoreUnavailable(message)


@contextmanager
def storage(doing: str) -> Iterator[None]:
    """Turn `OSError` into the matching `StoreError`."""
    try:
        yield
    except OSError as error:
        raise store_error(error.errno, f"could not {doing}: {error}") from error


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data``; one call of `os.write` moves 2 GiB at most, and may move less."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_file(target: Path, data: bytes | memoryview, temporary: Path) -> None:
    """Put a durable file at ``target``: ``temporary`` is on the same file system and vanishes."""
    descriptor = os.open(temporary, _NEW, 0o600)
    try:
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(target.parent)


def make_folder(path: Path) -> None:
    """Make ``path`` if it is missing, durably; its parent exists."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    sync_folder(path.parent)


def sync_tree(folder: Path) -> int:
    """Sync every file and folder below ``folder``, make them private, return the bytes of files.

    Raises `StoreError` for anything that is neither a file nor a folder: a link could lead to
    bytes that change.
    """
    total = 0
    with os.scandir(folder) as found:
        members = list(found)
    for each in members:
        mode = each.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            total += sync_tree(Path(each.path))
        elif stat.S_ISREG(mode):
            total += _sync_file(each.path)
        else:
            raise StoreError(f"an artifact holds files and folders only, not {each.path}")
    os.chmod(folder, 0o700)
    sync_folder(folder)
    return total


def _sync_file(path: str) -> int:
    descriptor = os.open(path, _OLD)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def map_file(path: Path, size: int) -> bytes | memoryview:
    """The file's bytes: mapped when it has ``size`` bytes, else read.

    A file of another length is damaged. It is read, not mapped, so that whoever checks it finds
    wrong bytes instead of dying of SIGBUS.
    """
    descriptor = os.open(path, _OLD)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise StoreUnavailable(f"{path} is not a plain file")
        if facts.st_size == size and size > 0:
            return memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ))
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def read_prefix(path: Path, count: int) -> bytes:
    """At most the first ``count`` bytes."""
    descriptor = os.open(path, _OLD)
    try:
        return os.read(descriptor, count)
    finally:
        os.close(descriptor)


def discard(path: Path, trash: Path) -> None:
    """Take a file or a folder out of use at once, then remove it; what is mapped stays valid."""
    aside = trash / f"{path.name}.{os.urandom(4).hex()}"
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return
    remove(aside)


def remove(path: Path) -> None:
    """Remove a file or a folder; what can't be removed now is left to a later collection."""
    with suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            import shutil  # brings four compression libraries along

            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


@contextmanager
def locked(path: Path, *, patience: float = 60.0) -> Iterator[None]:
    """Hold the exclusive `flock` of the file ``path``; it dies with the process that holds it.

    Raises `StoreUnavailable` after ``patience`` seconds.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _locks.add(descriptor)
    try:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"another process has held {path} for {patience:.0f} s"
                    ) from None
                time.sleep(0.002)
        yield
    finally:
        # Not by closing alone: a child that another thread forked meanwhile has the same open file.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        _locks.discard(descriptor)
        os.close(descriptor)


_locks: set[int] = set()


def _after_fork() -> None:
    # In the child nobody leaves `locked`, and the lock would outlive a parent that is killed.
    for descriptor in _locks:
        with suppress(OSError):
            os.close(descriptor)
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork)
