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
_forking: list[Folder] = []
_locked_for_fork = False


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
    global _locked_for_fork
    deadline = time.monotonic() + _FORK_PATIENCE
    _locked_for_fork = _lock.acquire(timeout=_FORK_PATIENCE)
    _forking.extend(list(_users))
    for folder in _forking:
        folder.before_fork(max(deadline - time.monotonic(), 0.0))


def _after_fork_in_parent() -> None:
    global _locked_for_fork
    for folder in _forking:
        folder.after_fork_in_parent()
    _forking.clear()
    if _locked_for_fork:
        _locked_for_fork = False
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock, _locked_for_fork
    _lock, _locked_for_fork = threading.RLock(), False
    _forking.clear()
    for folder in list(_users):
        folder.after_fork_in_child()


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
