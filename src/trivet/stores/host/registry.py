"""One `Folder` per folder and process, whatever path it is opened by; and what forks do to them.

LMDB can't open a file twice in a process, so all stores of a folder share one.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from trivet.errors import StoreError
from trivet.stores.host.folder import Folder, inode

_FORK_PATIENCE = 1.0  # seconds that a fork may wait for operations of other threads

_lock = threading.RLock()
_users: dict[Folder, int] = {}
_by_inode: dict[tuple[int, int], Folder] = {}


class _Fork(threading.local):
    """What a fork by this thread holds. Threads may fork at the same time."""

    locked: bool = False
    folders: list[Folder]

    def __init__(self) -> None:
        self.folders = []


_fork = _Fork()


def acquire(root: Path, map_size: int) -> Folder:
    """The folder's one `Folder`, opened if need be; give it back with `release`.

    Raises `StoreError`; `UnsafeFolder` before anything is written.
    """
    root = Path(os.path.realpath(root))
    with _lock:
        same_path = (each for each in list(_users) if each.layout.root == root)
        found = _by_inode.get(inode(root)) or next(same_path, None)
        if found is None:
            found = Folder(root, map_size, _moved)
        else:
            found.refresh(create=True)
        _users[found] = _users.get(found, 0) + 1
        return found


def release(folder: Folder) -> None:
    """Give a folder back; the last one closes it."""
    with _lock:
        _users[folder] -= 1
        if _users[folder] == 0:
            _forget(folder)
            folder.close()


def _moved(folder: Folder) -> None:
    # Without the lock: it may be held by a fork that waits for this very thread.
    _unlist(folder)
    _by_inode[inode(folder.layout.root)] = folder


def _forget(folder: Folder) -> None:
    _users.pop(folder, None)
    _unlist(folder)


def _unlist(folder: Folder) -> None:
    for key in [key for key, value in list(_by_inode.items()) if value is folder]:
        _by_inode.pop(key, None)


def _before_fork() -> None:
    deadline = time.monotonic() + _FORK_PATIENCE
    _fork.locked = _lock.acquire(timeout=_FORK_PATIENCE)
    for folder in list(_users):
        if folder.before_fork(max(deadline - time.monotonic(), 0.0)):
            _fork.folders.append(folder)


def _after_fork_in_parent() -> None:
    locked, _fork.locked = _fork.locked, False
    folders, _fork.folders = _fork.folders, []
    try:
        for folder in folders:
            folder.after_fork_in_parent()
    finally:
        if locked:
            _lock.release()


def _after_fork_in_child() -> None:
    global _lock
    _lock, _fork.locked = threading.RLock(), False
    folders, _fork.folders = _fork.folders, []
    for folder in list(_users):
        folder.after_fork_in_child(held=folder in folders)


@atexit.register
def _at_exit() -> None:
    for folder in list(_users):
        _forget(folder)
        with suppress(StoreError, OSError):
            folder.close()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
