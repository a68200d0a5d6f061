"""Hosts for tests: a cache folder each, and one shared tier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.support.engine import eventually, key

from trivet.cache import Artifact, ArtifactLease, Cache, Hit
from trivet.cache.shared import Shared
from trivet.clock import Clock, SystemClock
from trivet.codecs import Bytes
from trivet.entries import Descriptor, seal
from trivet.events import Tier
from trivet.keys import Key
from trivet.stores.host import HostStore
from trivet.stores.shared import Leases, ObjectStore, ValkeyStore
from trivet.testing import Recorder

BYTES = Bytes()
REPEATS = 2_000_000  # a plan is its word this many times: it moves in more than one request


class Host:
    """One host. Made again with the same folder it is another process of that host.

    Args:
        objects, values: urls of the shared tier.
        timeout: seconds for a request.
    """

    def __init__(
        self,
        folder: Path,
        objects: str | None = None,
        values: str | None = None,
        *,
        clock: Clock | None = None,
        timeout: float = 20.0,
        lease_seconds: float = 30.0,
        memory_bytes: int = 1 << 20,
    ) -> None:
        clock = clock or SystemClock()
        self.events = Recorder()
        self.objects = None if objects is None else ObjectStore(objects, timeout=timeout)
        self.values = None if values is None else ValkeyStore(values, timeout=timeout)
        self.shared = None
        if self.objects is not None or self.values is not None:
            leases = None
            if self.values is not None:
                leases = Leases(self.values, seconds=lease_seconds)
            self.shared = Shared(self.objects, self.values, leases=leases, clock=clock)
        self.cache = Cache(
            HostStore.open(folder, clock=clock),
            shared=self.shared,
            memory_bytes=memory_bytes,
            sink=self.events,
            clock=clock,
        )

    def value(
        self,
        make: Callable[[], bytes],
        *,
        name: Key | None = None,
        tags: tuple[str, ...] = (),
        lifetime: float | None = None,
        wait: float = 60.0,
    ) -> bytes:
        """`Cache.get_or_compute`."""
        return self.cache.get_or_compute(
            name or key(), make, BYTES, tags=tags, lifetime=lifetime, wait=wait
        )

    def plan(
        self, word: bytes | None, *, tags: tuple[str, ...] = (), wait: float = 60.0
    ) -> tuple[bytes, bool]:
        """The plan's word, and whether it was made here, of ``word``. None: it must be stored."""
        found = self.cache.acquire_files(key("plan"), tags=tags, wait=wait)
        if isinstance(found, ArtifactLease):
            with found as lease:
                assert word is not None, f"had to be made: {lease.reason}"
                (lease.staging / "deep").mkdir()
                (lease.staging / "deep" / "plan.bin").write_bytes(word * REPEATS)
                (lease.staging / "facts.txt").write_text("two files")
                artifact: Artifact = lease.commit()
            return read_plan(artifact), True
        assert isinstance(found, Hit)
        return read_plan(found.value), False

    def rewrite(self, content: bytes, *, name: Key | None = None) -> None:
        """Put another value under the key, in all tiers, as who refreshes one does."""
        assert self.shared is not None
        tiers, key_ = self.cache.engine.tiers, name or key()
        assert tiers.shared is not None
        descriptor = Descriptor(
            codec=BYTES.id, created=tiers.clock.time(), cost=1.0, size=len(content)
        )
        lease = self.shared.try_take(key_.digest) if self.values is not None else None
        sealed = seal(key_.canonical, descriptor, content)
        tiers.keep(key_, descriptor, sealed, content, tiers.generation())
        tiers.shared.writer.value(key_, descriptor, content, lease)
        if lease is not None:
            lease.release()

    def look(self, name: Key | None = None) -> tuple[bytes, Tier] | None:
        """`Cache.get`: the value and where it was, None for a miss."""
        found = self.cache.get(name or key(), BYTES)
        return (found.value, found.tier) if isinstance(found, Hit) else None

    def wait_until_told(self) -> Self:
        """Returns this host when this process is told what others change."""
        self.cache.get(key("nothing"), BYTES)
        eventually(self.is_told, "the connection for pushes")
        return self

    def is_told(self) -> bool:
        """Whether this process is told what others change."""
        shared = self.cache.engine.tiers.shared
        return shared is not None and shared.near is not None and shared.near.is_told()

    def close(self) -> None:
        """End this process of the host."""
        self.cache.close()


def read_plan(artifact: Artifact) -> bytes:
    """The word of a plan, all of which was looked at."""
    folder = artifact.verify()
    assert (folder / "facts.txt").read_text() == "two files"
    content = (folder / "deep" / "plan.bin").read_bytes()
    word = content[: len(content) // REPEATS]
    assert content == word * REPEATS, "not what was written"
    return word


def never() -> bytes:
    """A computation that must not happen."""
    raise AssertionError("this must be answered from a tier")
