"""One cache folder in one process: opened, healed when it is damaged or replaced, forked."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from trivet.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from trivet.stores.host import check, safety
from trivet.stores.host.disk import locked, storage
from trivet.stores.host.environment import Environment, IndexDamaged
from trivet.stores.host.epochs import Epochs
from trivet.stores.host.generation import Generation
from trivet.stores.host.layout import Format, Layout, boot_id, read_format, write_format
from trivet.stores.host.running import (
    CHECK_MARK,
    CHECKING,
    IDLE,
    INSIDE,
    SLOT_SIZE,
    Slot,
    look,
    sweep_staging,
)


class Folder:
    """The parts of an open cache folder.

    Attributes:
        read_only: nothing in the folder can be written, for lack of permission or of room.
        env, epochs, generation: the parts. The latter two are replaced when the folder is.
        rebuilds: reason and number of entries of each rebuild that nobody has reported yet.
        moved: called with this object whenever it has opened a (new) folder.
    """

    env: Environment
    epochs: Epochs
    generation: Generation

    def __init__(self, root: Path, map_size: int, moved: Callable[[Folder], None]) -> None:
        """``root`` has no links in it; ``map_size`` is for a new folder. Raises `StoreError`."""
        self.layout = Layout(root)
        self._data = str(self.layout.data)  # looked at by every miss and every write
        self.read_only = False
        self.rebuilds: list[tuple[str, int]] = []
        self._moved = moved
        self._map_size = map_size
        self._slot: Slot | None = None
        self._counter = itertools.count(1)
        self._root_descriptor = -1
        self._index_inode = (0, 0)
        self._dirty = False  # format.json is known to say so
        self._full = False  # read-only for lack of room
        self._mended = False
        self._orphaned = False
        self.env = Environment(self._attach)
        try:
            with self.env.exclusive():
                self._attach()
        except BaseException:
            self.close()  # the slot would say that somebody uses the folder, and keep a descriptor
            raise

    def nonce(self) -> bytes:
        """Eight bytes that no other entry of the folder has: the slot, and a counter."""
        return bytes.fromhex(self._slot_name()) + next(self._counter).to_bytes(4, "big")

    def temporary(self) -> Path:
        """A new path in ``staging/``, removed by others when this process is dead."""
        return self.layout.staging / f"{self._slot_name()}.{next(self._counter)}"

    def is_current(self) -> bool:
        """Whether the folder still holds the index that is open here, and that one is usable."""
        return not self.env.broken and inode(self._data) == self._index_inode

    def refresh(self, *, create: bool) -> bool:
        """Open what the folder holds now; True when that was needed and was done.

        ``create``: make a folder that was removed anew, and mend a broken index.
        """
        if not self._wants_attach():
            return False
        if not create and (self.env.broken or inode(self._data) == (0, 0)):
            return False
        with self.env.exclusive():
            if not self._wants_attach():
                return False
            self.env.detach()
            self._attach()
            return True

    def rebuild(self, reason: str) -> int:
        """Replace the index by one made from the files; returns the number of entries."""
        with self.env.exclusive(), storage("rebuild the index"), self.locked():
            self.env.detach()
            count = self._rebuild(reason)
            self._open_index()
            return count

    def mark_dirty(self) -> None:
        """Note, durably, that the index is about to differ from what the disk holds."""
        if self._dirty:
            return
        with storage("write format.json"), self.locked():
            facts = read_format(self.layout)
            if facts is None or facts.clean or facts.boot != boot_id():
                write_format(self.layout, self._facts(facts, clean=False))
            self._dirty = True

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from opening, rebuilding or sweeping the folder."""
        return locked(self.layout.lock)

    def close(self) -> None:
        """Let go of everything; the last user of a written index makes it durable."""
        with self.env.exclusive():
            with suppress(StoreError, OSError):
                self._leave()
            self.env.detach()
            if self._slot is not None:
                self._slot.release()
                self._slot = None
        if self._root_descriptor >= 0:
            os.close(self._root_descriptor)
            self._root_descriptor = -1

    def before_fork(self, patience: float) -> bool:
        """Close the index for a moment: nobody inherits it.

        True when this thread holds the folder now: only then call `after_fork_in_parent`.
        """
        return self.env.before_fork(patience)

    def after_fork_in_parent(self) -> None:
        """Open the index again; where that fails, the next operation tries to mend it."""
        try:
            if self.env.closed_for_fork:
                with suppress(StoreError):
                    if self.is_current():
                        self._open_index()
        finally:
            self.env.after_fork_in_parent()

    def after_fork_in_child(self, *, held: bool) -> None:
        """The child gets its own slot and index at its first operation."""
        self._orphaned = not self.env.after_fork_in_child(held=held)
        self._counter = itertools.count(1)
        self._dirty = False
        if self._slot is not None:
            self._slot.forget()
            self._slot = None

    def _wants_attach(self) -> bool:
        return not self.is_current() or self._full or (self._slot is None and not self.read_only)

    def _slot_name(self) -> str:
        if self._slot is None:
            self.refresh(create=True)
        if self._slot is None:
            raise StoreReadOnly(f"{self.layout.root} is read-only")
        return self._slot.name

    def _leave(self) -> None:
        if self._slot is None or not self._dirty or not self.env.attached:
            return
        with self.locked():
            if look(self.layout, bury=False).alive == {self._slot.name}:
                self.env.sync()
                write_format(self.layout, self._facts(read_format(self.layout), clean=True))

    def _facts(self, known: Format | None, *, clean: bool) -> Format:
        name = known.folder if known else os.urandom(8).hex()
        return Format(folder=name, map_size=self._map_size, boot=boot_id(), clean=clean)

    # Opening. `env.exclusive` is held.

    def _attach(self) -> None:
        if self._orphaned:
            raise StoreUnavailable(
                "this process was forked while the index was in use, and can't open it again",
                hint="fork when no other thread uses the cache, or start workers by spawn",
            )
        with storage(f"open the cache folder {self.layout.root}"):
            self._prepare_root()
            try:
                with storage("open it for writing"), self.locked():
                    self.read_only = self._full = False
                    self.layout.create()
                    self._attach_writable()
            except (StoreReadOnly, StoreFull) as error:
                self._attach_read_only(error)
            self._hold_root()
        self._moved(self)

    def _prepare_root(self) -> None:
        root = self.layout.root
        safety.require_safe_ancestors(root)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        safety.require_safe(root)
        safety.require_local(root)

    def _attach_writable(self) -> None:
        fresh = not self.layout.format.exists() and not self.layout.index.exists()
        facts = read_format(self.layout)
        seen = look(self.layout, bury=False)
        slot = self._take_slot()
        if facts is not None:
            self._map_size = facts.map_size
        self._dirty = False
        self._open_shared(fresh=fresh)
        suspect = self.env.broken or seen.mark != IDLE
        slot.marks[CHECK_MARK] = CHECKING if suspect else IDLE
        try:
            reason = self._distrust(facts, seen.mark, alone=seen.alive <= {slot.name})
            if reason is not None:
                self._rebuild("" if fresh else reason)
            self._open_or_rebuild()
        finally:
            slot.marks[CHECK_MARK] = IDLE
        if facts is None:
            write_format(self.layout, self._facts(None, clean=False))
        sweep_staging(self.layout, look(self.layout, bury=True).alive)

    def _take_slot(self) -> Slot:
        if self._slot is not None and not self._slot.present():
            self._slot.forget()
            self._slot = None
        if self._slot is None:
            self._slot = Slot(self.layout)
        return self._slot

    def _open_shared(self, *, fresh: bool) -> None:
        path, read_only = self.layout.generation, self.read_only
        known = getattr(self, "generation", None)
        self.generation = Generation(path, self.temporary, read_only=read_only)
        if known is not None and not read_only:
            # A copy that was put in the folder's place may have a generation that was seen before.
            self.generation.outrun(known)
        self.epochs = Epochs(
            self.layout.epochs, self.generation, self.temporary, fresh=fresh, read_only=read_only
        )

    def _distrust(self, facts: Format | None, mark: int, *, alone: bool) -> str | None:
        """Why the index must be rebuilt; None when it can be used."""
        if not self.layout.data.exists():
            return "the index is missing"
        if facts is None:
            return "format.json is missing or damaged"
        if not facts.clean and facts.boot != boot_id():
            return "the machine went down before all of the index had reached the disk"
        if self.env.broken and self._mended:
            return "the index failed again after it was checked"
        self._mended = self.env.broken
        problem = check.truncation(self.layout.data)
        if problem is None and mark == CHECKING:
            problem = "a process died while it checked the index"
        if problem is None and (mark == INSIDE or self.env.broken):
            problem = self._damage(alone=alone)
        return problem

    def _damage(self, *, alone: bool) -> str | None:
        """What is wrong with the structure, looked at while nobody can write."""
        if alone:
            return check.damage(self.layout.index)
        try:
            self._open_index()
            with self.env.write():
                return check.damage(self.layout.index)
        except IndexDamaged as error:
            return str(error)
        finally:
            self.env.detach()

    def _rebuild(self, reason: str) -> int:
        from trivet.stores.host.rebuild import replace_index

        count = replace_index(self.layout, self._map_size, self.temporary().name)
        with self.generation.exclusive():
            self.generation.bump()
        if reason:
            self.rebuilds.append((reason, count))
        return count

    def _open_or_rebuild(self) -> None:
        try:
            self._open_index()
        except IndexDamaged as error:
            self._rebuild(str(error))
            self._open_index()

    def _open_index(self) -> None:
        marks = self._slot.marks if self._slot is not None else bytearray(SLOT_SIZE)
        self.env.attach(self.layout.index, self._map_size, marks, read_only=self.read_only)
        self._index_inode = inode(self._data)

    def _attach_read_only(self, error: StoreError) -> None:
        self.read_only, self._full = True, isinstance(error, StoreFull)
        facts = read_format(self.layout)
        if facts is None or not self.layout.data.exists():
            raise type(error)(
                f"{self.layout.root} can't be written and holds no cache: {error.message}",
                hint="choose another folder, or fill this one while it can be written",
            ) from error
        self._map_size = facts.map_size
        problem = check.truncation(self.layout.data)
        if problem is None and not facts.clean and facts.boot != boot_id():
            problem = check.damage(self.layout.index)
        if problem is not None:
            raise StoreUnavailable(f"the index of {self.layout.root} is damaged: {problem}")
        self._open_shared(fresh=False)
        self._open_index()

    def _hold_root(self) -> None:
        """Keep the folder's inode from being used again: it identifies the folder."""
        if self._root_descriptor >= 0:
            os.close(self._root_descriptor)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._root_descriptor = os.open(self.layout.root, flags)


def inode(path: Path | str) -> tuple[int, int]:
    """Device and inode, or zeros."""
    try:
        facts = os.stat(path)
    except OSError:
        return (0, 0)
    return facts.st_dev, facts.st_ino
