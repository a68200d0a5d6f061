"""The tiers behind one cache: where a look-up goes, and what happens when a tier is broken.

Nothing here computes or waits. A broken tier is a miss and an event, unless ``strict``.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trivet.cache.breaker import KeyBreaker
from trivet.cache.outcomes import Failed, Hit, Miss
from trivet.cache.own_epochs import OwnEpochs
from trivet.cache.validity import judge
from trivet.clock import Clock
from trivet.codecs import Codec
from trivet.entries import Descriptor, Sealed, unseal
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreError, StoreReadOnly
from trivet.events import Event, EventKind, MissReason, Sink, Tier
from trivet.keys import Key
from trivet.memory import MemoryEntry, MemoryTier, entry_size
from trivet.stores import FileStore

if TYPE_CHECKING:
    from trivet.cache.layers import Layers
    from trivet.cache.shared import Shared
    from trivet.cache.shared_tier import SharedTier

T = TypeVar("T")

_MEMORY, _HOST = Tier.MEMORY, Tier.HOST  # looked up once: on a hit, Python 3.11 takes 0.15 us each


class Tiers:
    """Memory and host tier, with the judgement of what may be used; layers and the shared tier, if
    there are any."""

    def __init__(
        self,
        memory: MemoryTier,
        store: FileStore | None,
        clock: Clock,
        sink: Sink | None,
        *,
        strict: bool,
        shared: Shared | None = None,
    ) -> None:
        self.layers: Layers | None = None
        self.memory = memory
        self.store = store
        self.clock = clock
        self.strict = strict
        self.breaker = KeyBreaker(clock)
        self.counts: Counter[str] = Counter()
        self.codecs: dict[str, Codec[Any]] = {}  # by id, for preloads
        self.hits = 0  # beside `counts`, since these come a million times a second
        # Changes whenever live copies must be looked at again; asked on every hit.
        self.own = OwnEpochs()  # used where there is no store
        self.generation: Callable[[], int] = (self.own if store is None else store).generation
        self._sink = sink
        self.is_silent = sink is None
        self._epochs: dict[str, int] = {}
        self._epochs_generation = -1
        self.shared: SharedTier | None = None
        if shared is not None:
            from trivet.cache.shared_tier import SharedTier

            self.shared = SharedTier(self, shared)
            view, own = self.shared.view, self.generation
            self.generation = lambda: own() + view.changes  # neither ever becomes less

    def alone(self) -> Tiers:
        """The same memory and host tier, without what others made."""
        here = Tiers(self.memory, self.store, self.clock, self._sink, strict=self.strict)
        if self.store is None:
            here.own = self.own
            here.generation = self.own.generation
        return here

    # -- reading -------------------------------------------------------------------------------

    def look_memory(self, key: Key, codec: Codec[T], stale: float = 0.0) -> Hit[T] | Failed | None:
        """A live copy, if it is still valid for this process's view of the world. ``stale`` as for
        `judge`.

        Asks nobody; `SharedTier.refresh` keeps the view of what other hosts do within its bound.
        """
        entry = self.memory.get(key.digest)
        if entry is None or (entry.key is not key and entry.key != key):
            return None
        if entry.generation != self.generation():
            self.memory.remove(key.digest)
            return None
        descriptor = entry.descriptor
        if entry.expires is not None and judge(
            descriptor, codec.id, self.clock.time(), descriptor.tags
        ):
            return self._look_over(entry, codec, stale)
        found: Hit[T] | Failed
        if descriptor.failure is not None:
            found = Failed(descriptor, _MEMORY)
        elif descriptor.codec != codec.id:
            return None
        elif codec.shareable:
            found = Hit(entry.value, descriptor, _MEMORY)
        else:
            found = Hit(codec.decode(memoryview(entry.value)), descriptor, _MEMORY)
        if self._sink is None:
            self.hits += 1
        else:
            self.report_found(key, found)
        return found

    def _look_over(self, entry: MemoryEntry, codec: Codec[T], stale: float) -> Hit[T] | None:
        """`look_memory` of what may not be used, but for who accepts that its lifetime is over."""
        descriptor, now = entry.descriptor, self.clock.time()
        if descriptor.is_over(now):
            self.memory.remove(entry.key.digest)
        if not stale or judge(descriptor, codec.id, now, descriptor.tags, stale):
            return None
        value = entry.value if codec.shareable else codec.decode(memoryview(entry.value))
        found: Hit[T] = Hit(value, descriptor, _MEMORY, True)
        self.report_found(entry.key, found)
        return found

    def look_host(self, key: Key, codec: Codec[T], stale: float = 0.0) -> Hit[T] | Failed | Miss:
        """What the host store has, or a layer below it, verified. A good entry is also kept in
        memory. ``stale`` as for `judge`, not for layers."""
        found = self._look_store(key, codec, stale)
        if type(found) is Hit or self.layers is None:
            return found
        below = self._look_layers(self.layers, key, codec)
        if isinstance(below, Hit) or (
            isinstance(found, Miss) and found.reason is MissReason.ABSENT
        ):
            return below
        return found

    def _look_store(self, key: Key, codec: Codec[T], stale: float) -> Hit[T] | Failed | Miss:
        store = self.store
        if store is None:
            return Miss(MissReason.ABSENT)
        # Before the read: what changes meanwhile makes the live copy look again.
        generation = self.generation() if self.memory.budget else 0
        version = self.version(key)
        found = self.open_host(key, codec.id, store.read, stale)
        if type(found) is Miss:
            return found
        descriptor = found.descriptor
        if descriptor.failure is not None:
            self._keep_live(key, None, descriptor, generation, version)
            return Failed(descriptor, _HOST)
        try:
            value = codec.decode(found.payload)
        except (ValueError, TypeError, CorruptEntry) as error:
            return self._damaged(key, f"codec {codec.id} can't decode the payload: {error}")
        if self.memory.budget:
            live = value if codec.shareable else bytes(found.payload)
            self._keep_live(key, live, descriptor, generation, version)
        return Hit(value, descriptor, _HOST, stale > 0 and self._is_expired(descriptor))

    def _look_layers(self, layers: Layers, key: Key, codec: Codec[T]) -> Hit[T] | Miss:
        generation = self.generation()
        found = layers.look(self, key, codec.id)
        if isinstance(found, Miss):
            return found
        try:
            value = codec.decode(found.payload)
        except (ValueError, TypeError, CorruptEntry) as error:
            detail = f"codec {codec.id} can't decode the payload: {error}"
            return layers.damaged(self, key, MissReason.CORRUPT, detail)
        live = value if codec.shareable else bytes(found.payload)
        self._keep_live(key, live, found.descriptor, generation)
        return Hit(value, found.descriptor, Tier.LAYER)

    def open_host(
        self,
        key: Key,
        codec_id: str,
        read: Callable[[bytes], bytes | memoryview | None],
        stale: float = 0.0,
    ) -> Sealed | Miss:
        """Read, verify and judge one sealed entry of the host store."""
        digest = key.digest
        struck = self.breaker.strikes
        if struck and self.breaker.is_open(digest):
            return Miss(MissReason.BREAKER_OPEN, "its entry was corrupt twice in a row")
        try:
            raw = read(digest)
            if raw is None:
                return Miss(MissReason.ABSENT)
            sealed = unseal(raw)
            if sealed.key != key.canonical:
                return Miss(MissReason.KEY_MISMATCH, "another key has the same digest")
            descriptor = sealed.descriptor
            tags = descriptor.tags
            epochs = self.epochs(tags, self.generation()) if tags else tags
        except CorruptEntry as error:
            return self._damaged(key, error.message)
        except IncompatibleEntry as error:
            return Miss(MissReason.INCOMPATIBLE, error.message)
        except (StoreError, OSError) as error:
            self.tier_failed(error, "read")
            return Miss(MissReason.UNAVAILABLE, str(error))
        now = self.clock.time() if descriptor.expires is not None else 0.0
        reason = judge(descriptor, codec_id, now, epochs, stale)
        if reason is not None:
            return Miss(reason)
        if tags and self.shared is not None and not self.shared.is_current(descriptor):
            return Miss(MissReason.INVALIDATED, "by another host")
        if struck:
            self.breaker.clear(digest)
        if self.store is not None:
            self.store.touch(digest)
        return sealed

    def _is_expired(self, descriptor: Descriptor) -> bool:
        return descriptor.expires is not None and not self.clock.time() < descriptor.expires

    def epochs(self, tags: Mapping[str, int] | tuple[str, ...], generation: int) -> dict[str, int]:
        """Current epochs, remembered until the generation changes."""
        if not tags:
            return {}
        if self.store is None:  # with a shared tier its epochs count
            return self.own.current(tags) if self.shared is None else dict.fromkeys(tags, 0)
        if generation != self._epochs_generation:
            self._epochs = {}
            self._epochs_generation = generation
        known = self._epochs
        missing = [tag for tag in tags if tag not in known]
        if missing:
            known.update(self.store.epochs(missing))
        return known

    def version(self, key: Key) -> int:
        """For `keep`, from before an entry is read: whether others changed it meanwhile."""
        near = None if self.shared is None else self.shared.near
        return 0 if near is None else near.version(key.digest)

    # -- writing -------------------------------------------------------------------------------

    def keep(
        self,
        key: Key,
        descriptor: Descriptor,
        sealed: bytes,
        live: object,
        generation: int,
        version: int | None = None,
    ) -> None:
        """Keep an entry in both tiers, as far as they can.

        ``version`` is from before it was read from the shared tier; None for one made here. One
        that others changed since then is not kept.
        """
        if version is not None and self.version(key) != version:
            return
        if self.store is not None and not self.breaker.is_open(key.digest):
            try:
                self.store.write(key.digest, sealed)
                if version is not None and self.version(key) != version:
                    # Not `evict`: another process of the host may have read it.
                    self.store.delete(key.digest)
            except (StoreError, OSError) as error:
                self.tier_failed(error, "write")
        self._keep_live(key, live, descriptor, generation, version)

    def publish(self, key: Key, sealed: bytes, staging: Path) -> tuple[Path | None, str | None]:
        """Publish an artifact in the host store: its folder, or why it can't be kept."""
        if self.store is None:
            return None, "there is no store that can be written"
        if self.breaker.is_open(key.digest):
            return None, "its entry was corrupt twice in a row"
        try:
            return self.store.publish(key.digest, sealed, staging), None
        except (StoreError, OSError) as error:
            self.tier_failed(error, "publish")
            return None, str(error)

    def _keep_live(
        self,
        key: Key,
        live: object,
        descriptor: Descriptor,
        generation: int,
        version: int | None = None,
    ) -> None:
        if not self.memory.budget:
            return
        near = None if self.shared is None or version is None else self.shared.near
        entry = MemoryEntry(key, live, descriptor, generation, descriptor.expires)
        size, cost = entry_size(key, live), descriptor.cost
        if near is None or version is None:
            self.memory.put(key.digest, entry, size=size, cost=cost)
        else:
            put = partial(self.memory.put, key.digest, entry, size=size, cost=cost)
            near.keep(key.digest, version, put)

    # -- trouble -------------------------------------------------------------------------------

    def quarantine(self, key: Key, reason: MissReason, detail: str) -> Miss:
        """Move an entry aside so that nobody meets it again."""
        self.memory.remove(key.digest)
        self.breaker.strike(key.digest)
        if self.store is not None:
            try:
                self.store.quarantine(key.digest, detail)
            except (StoreError, OSError) as error:
                self.tier_failed(error, "quarantine", raises=False)
        self.emit(EventKind.QUARANTINED, Tier.HOST, key=key, reason=reason, detail=detail)
        return Miss(reason, detail)

    def refuse_content(self, key: Key, payload: memoryview | None = None) -> None:
        """Let what is stored under ``key`` not come back from the shared tier to this host.

        ``payload`` is of its entry, read here where it is not given.
        """
        if self.shared is None:
            return
        if payload is None:
            with suppress(StoreError, OSError, CorruptEntry, IncompatibleEntry):
                raw = self.store.read(key.digest) if self.store is not None else None
                payload = None if raw is None else unseal(raw).payload
        if payload is not None:
            self.shared.notes.refuse(key.digest, payload)

    def _damaged(self, key: Key, detail: str) -> Miss:
        return self.quarantine(key, MissReason.CORRUPT, detail)

    def tier_failed(
        self,
        error: Exception,
        action: str,
        *,
        raises: bool = True,
        tier: Tier = Tier.HOST,
    ) -> None:
        """Report a broken tier; raise its error when ``strict``."""
        self.emit(EventKind.TIER_FAILED, tier, detail=f"{action}: {error}")
        if self.strict and raises and not _only_read_only(error):
            raise error

    def emit(
        self,
        kind: EventKind,
        tier: Tier,
        *,
        key: Key | None = None,
        reason: MissReason | None = None,
        seconds: float = 0.0,
        size: int = 0,
        detail: str = "",
    ) -> None:
        """Count, and hand the event to the sink if there is one."""
        self.counts[kind if reason is None else f"{kind}:{reason}"] += 1
        if self._sink is None:
            return
        self._sink(
            Event(
                kind=kind,
                tier=tier,
                space=key.space if key is not None else "",
                digest=key.digest if key is not None else b"",
                reason=reason,
                seconds=seconds,
                size=size,
                detail=detail,
            )
        )

    def report_found(self, key: Key, found: Hit[Any] | Failed | Miss) -> None:
        """`emit` for the outcome of a look-up."""
        if isinstance(found, Hit):
            if self._sink is None and not found.stale:
                self.hits += 1
                return
            kind = EventKind.STALE if found.stale else EventKind.HIT
            self.emit(kind, found.tier, key=key, size=found.descriptor.size)
        elif isinstance(found, Failed):
            self.emit(EventKind.FAILURE_HIT, found.tier, key=key, detail=found.error_class)
        else:
            self.emit(
                EventKind.MISS, Tier.ENGINE, key=key, reason=found.reason, detail=found.detail
            )


def _only_read_only(error: Exception) -> bool:
    """Whether nothing is broken: what can only be read was asked to be written."""
    if isinstance(error, OSError):
        return error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
    return isinstance(error, StoreReadOnly)
