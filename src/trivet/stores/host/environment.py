"""The LMDB environment of one folder in one process: threads, forks, errors.

LMDB forbids two things that a library can't keep its users from doing: opening a file twice in a
process, and using an environment in a forked child. `Folder` sees to the first. For the second,
every operation holds a slot; before a fork all slots are taken, so that no transaction is open at
the fork, and the child closes the inherited environment. Without transactions that frees only what
is the child's: closing one with transactions would clear the parent's entries in the table of
readers.
"""

from __future__ import annotations

import errno
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import lmdb

from trivet.errors import StoreError, StoreFull, StoreUnavailable
from trivet.stores.host.disk import store_error
from trivet.stores.host.running import CHECK_MARK, IDLE, INSIDE, SLOT_SIZE

MAX_READERS = 1024
_PATIENCE = 10.0  # seconds for an operation to end
_TRANSIENT = (lmdb.ReadersFullError, lmdb.LockError, lmdb.MemoryError, lmdb.BadRslotError)
_OPEN_ALREADY = "already open in this process"  # the binding's own words; there is no code for it


class IndexFull(StoreFull):
    """The index has no free page left."""


class IndexDamaged(StoreUnavailable):
    """The file can't be the index that it should be."""


class Environment:
    """One open index.

    Attributes:
        broken: an operation failed in a way that a reopening, or a rebuild, must mend. All
            operations raise `StoreUnavailable` until `attach` is called.
        attached: whether the index is open.
        closed_for_fork: it was open when the fork that is under way began.
    """

    def __init__(self, reattach: Callable[[], None]) -> None:
        """``reattach`` is called, by one thread at a time, when an operation finds it closed."""
        self._reattach = reattach
        self._lock = threading.RLock()
        # Slots that no operation holds. Operations take one from `_idle` and return it to `_home`:
        # the same list, but for the time in which nobody may begin.
        self._home: list[int] = []
        self._idle = self._home
        self._taken: list[int] = []  # slots that `exclusive` or a fork holds
        self._made = 0
        self.closed_for_fork = False
        self._marks: mmap.mmap | bytearray = bytearray(SLOT_SIZE)
        self._env: lmdb.Environment | None = None
        self._begin: Callable[..., lmdb.Transaction[bytes]] = _closed
        self.broken = False
        self.entries: Any = None
        self.uses: Any = None
        self.groups: Any = None
        self.totals: Any = None

    @property
    def attached(self) -> bool:
        return self._env is not None

    def attach(
        self, path: Path, map_size: int, marks: mmap.mmap | bytearray, *, read_only: bool
    ) -> None:
        """Open the index in the folder ``path``. Call it inside `exclusive`, or before any use."""
        try:
            env = _open(path, map_size, read_only=read_only)
            create = not read_only
            try:
                self.entries = env.open_db(b"entries", create=create)
                self.uses = env.open_db(b"uses", create=create)
                self.groups = env.open_db(b"groups", create=create, dupsort=True)
                self.totals = env.open_db(b"totals", create=create)
                if create:
                    env.reader_check()
            except BaseException:
                env.close()
                raise
        except lmdb.Error as error:
            self._fail(error)
        self._env, self._begin, self._marks, self.broken = env, env.begin, marks, False

    def get(self, digest: bytes) -> bytes | None:
        """The record of ``digest``: the hot path."""
        try:
            slot = self._idle.pop()
        except IndexError:
            slot = self._enter()
        marks, begin = self._marks, self._begin
        marks[slot] = INSIDE
        try:
            return begin(self.entries).get(digest)
        except lmdb.Error as error:
            self._fail(error)
        finally:
            marks[slot] = IDLE
            self._home.append(slot)

    @contextmanager
    def read(self, *, buffers: bool = False) -> Iterator[Any]:
        """A read transaction. Keep it short: pages that it sees can't be reused."""
        with self._operation(), self._begin(buffers=buffers) as txn:
            yield txn

    @contextmanager
    def write(self) -> Iterator[lmdb.Transaction[bytes]]:
        """A write transaction: committed at the end, undone when something is raised."""
        with self._operation(), self._begin(write=True) as txn:
            yield txn

    def info(self) -> dict[str, int]:
        """Bytes in use of the file and of the address space, and the number of readers."""
        with self._operation():
            env = self._env
            assert env is not None
            facts, page = env.info(), env.stat()["psize"]
            return {
                "used": (facts["last_pgno"] + 1) * page,
                "map_size": facts["map_size"],
                "readers": facts["num_readers"],
            }

    def clear_dead_readers(self) -> int:
        """Give back the pages that processes which died inside a read were looking at."""
        with self._operation():
            assert self._env is not None
            return self._env.reader_check()

    def sync(self) -> None:
        """Make everything durable."""
        with self._operation():
            assert self._env is not None
            self._env.sync(True)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep every other thread out. Raises `StoreUnavailable` when one won't leave."""
        with self._lock:
            if not self._drain(_PATIENCE):
                raise StoreUnavailable("an operation on the index takes too long")
            try:
                yield
            finally:
                self._refill()

    def detach(self) -> None:
        """Close the index. Call it inside `exclusive`."""
        env, self._env, self._begin = self._env, None, _closed
        self._home.clear()
        self._taken.clear()
        self._made = 0
        if env is not None:
            env.close()

    # Forks. `Folder` calls these from the hooks of `os.register_at_fork`.

    def before_fork(self, patience: float) -> bool:
        """Keep everybody out, and close the index when no operation is under way.

        Closed by the child it would take protection from what the parent is reading by then.
        Returns whether this thread keeps the others out now, until `after_fork_in_parent`.
        """
        if not self._lock.acquire(timeout=patience):
            return False
        if self._drain(patience) and self._env is not None:
            self.detach()
            self.closed_for_fork = True
        return True

    def after_fork_in_parent(self) -> None:
        self.closed_for_fork = False
        self._refill()
        self._lock.release()

    def after_fork_in_child(self, *, held: bool) -> bool:
        """Let go of the parent's environment; False when the child has to live without it.

        ``held``: what `before_fork` returned; False too when it was not called, by a fork from C.
        """
        env, self._env, self._begin = self._env, None, _closed
        # Else another thread may have been opening or closing it.
        still = held or self._lock.acquire(blocking=False)
        quiet = still and len(self._home) + len(self._taken) == self._made
        self._lock, self.closed_for_fork = threading.RLock(), False
        self._home, self._taken, self._made = [], [], 0
        self._idle = self._home
        self._marks = bytearray(SLOT_SIZE)
        if env is None:
            return still
        if quiet:
            env.close()
        else:
            # Even collecting it as garbage would clear the parent's readers.
            import ctypes

            ctypes.pythonapi.Py_IncRef(ctypes.py_object(env))
        return quiet

    def _drain(self, patience: float) -> bool:
        deadline = time.monotonic() + patience
        self._idle = []
        while len(self._taken) < self._made:
            try:
                self._taken.append(self._home.pop())
            except IndexError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.0001)
        return True

    def _refill(self) -> None:
        taken, self._taken = self._taken, []
        self._home.extend(taken)
        self._idle = self._home

    def _enter(self) -> int:
        """A slot when none is idle: the first use, more threads than before, or a closed index."""
        with self._lock:
            if self._env is None and not self.broken:
                self._reattach()
            if self._home:  # nobody was allowed to begin for a while, and this thread waited
                with suppress(IndexError):
                    return self._home.pop()
            if self._made >= CHECK_MARK:
                raise StoreUnavailable("too many threads use the index at the same time")
            self._made += 1
            return self._made - 1

    @contextmanager
    def _operation(self) -> Iterator[None]:
        try:
            slot = self._idle.pop()
        except IndexError:
            slot = self._enter()
        self._marks[slot] = INSIDE
        try:
            yield
        except lmdb.Error as error:
            self._fail(error)
        finally:
            self._marks[slot] = IDLE
            self._home.append(slot)

    def _fail(self, error: lmdb.Error) -> NoReturn:
        raise self._translated(error) from error

    def _translated(self, error: lmdb.Error) -> StoreError:
        if isinstance(error, lmdb.BadValsizeError):
            return StoreError(f"the index can't hold such a digest: {error}")
        if isinstance(error, lmdb.MapFullError):
            return IndexFull("the index is full", hint="raise the budget in a new cache folder")
        if isinstance(error, _TRANSIENT) or _OPEN_ALREADY in str(error):
            return StoreUnavailable(f"the index can't be used at the moment: {error}")
        if error.code == errno.EIO:  # LMDB's word for a write that the disk took in part
            return StoreFull(f"the index could not be written in full: {error}")
        code = errno.EACCES if isinstance(error, lmdb.ReadonlyError) else error.code
        known = store_error(code, f"the index could not be written: {error}")
        if isinstance(known, StoreUnavailable):
            self.broken, self._begin = True, _closed
            return IndexDamaged(f"the index is damaged, or was replaced: {error}")
        return known


def _closed(*_: object, **__: object) -> NoReturn:
    raise StoreUnavailable("the index is closed, or waits to be mended")


def _open(path: Path, map_size: int, *, read_only: bool) -> lmdb.Environment:
    def opened(*, lock: bool) -> lmdb.Environment:
        return lmdb.open(
            str(path),
            map_size=map_size,
            readonly=read_only,
            lock=lock,
            create=False,
            mode=0o700,
            # A crash of the machine may tear the file. It is then rebuilt: see `Folder`.
            sync=False,
            metasync=False,
            max_readers=MAX_READERS,
            max_dbs=8,
            max_spare_txns=0,
        )

    if not read_only:
        return opened(lock=True)
    try:
        return opened(lock=True)
    except lmdb.Error:
        return opened(lock=False)  # the lock file can't be written, so neither can the index
