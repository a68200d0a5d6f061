"""Wrappers: reading only, and the circuit breaker."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.support.store_entries import entry

from trivet.errors import StoreFull, StoreReadOnly, StoreUnavailable
from trivet.stores import Guarded, ReadOnly, StoredHead
from trivet.testing import FakeClock, MemoryStore
from trivet.testing.crash import run_forked


class Scripted(MemoryStore):
    """Raises what is in ``errors`` first; waits for ``gate`` where one is set."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []
        self.calls = 0
        self.gate: threading.Event | None = None

    def read(self, digest: bytes) -> bytes | None:
        self.calls += 1
        if self.gate is not None:
            self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        return super().read(digest)  # type: ignore[return-value]

    def scan(self) -> Iterator[StoredHead]:
        if self.errors:
            raise self.errors.pop(0)
        return super().scan()


def test_read_only_reads_and_refuses_to_write() -> None:
    inner = MemoryStore()
    digest, sealed = entry("a")
    inner.write(digest, sealed)
    store = ReadOnly(inner)
    assert store.read(digest) == sealed
    assert [each.digest for each in store.scan()] == [digest]
    with pytest.raises(StoreReadOnly):
        store.write(digest, sealed)
    with pytest.raises(StoreReadOnly):
        store.delete(digest)
    assert inner.read(digest) == sealed


def test_the_circuit_opens_after_failures_in_a_row_and_closes_by_a_trial() -> None:
    inner, clock = Scripted(), FakeClock()
    store = Guarded(inner, failures=3, reset_after=10.0, clock=clock)
    down = StoreUnavailable("down")
    inner.errors = [down, down]
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            store.read(b"x")
    store.read(b"x")
    assert not store.is_open, "a success in between starts the count anew"
    inner.errors = [down] * 4
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            store.read(b"x")
    assert store.is_open
    asked = inner.calls
    with pytest.raises(StoreUnavailable, match="left alone"):
        store.read(b"x")
    assert inner.calls == asked, "the store isn't asked"
    clock.sleep(11)
    with pytest.raises(StoreUnavailable, match="down"):
        store.read(b"x")
    with pytest.raises(StoreUnavailable, match="left alone"):
        store.write(*entry("a"))
    clock.sleep(11)
    assert store.read(b"x") is None
    assert not store.is_open


def test_an_error_about_the_call_is_an_answer() -> None:
    inner = Scripted()
    store = Guarded(inner, failures=2)
    inner.errors = [StoreUnavailable("x"), StoreFull("x"), StoreUnavailable("x"), StoreFull("x")]
    for _ in range(4):
        with pytest.raises((StoreUnavailable, StoreFull)):
            store.read(b"x")
    assert not store.is_open


def test_a_failing_scan_counts() -> None:
    inner = Scripted()
    store = Guarded(inner, failures=1)
    inner.errors = [StoreUnavailable("x")]
    with pytest.raises(StoreUnavailable):
        list(store.scan())
    assert store.is_open


def test_a_call_that_takes_too_long_is_a_failure_and_all_stuck_fail_at_once() -> None:
    inner = Scripted()
    inner.gate = threading.Event()
    store = Guarded(inner, failures=100, timeout=0.01, workers=2)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="within"):
            store.read(b"x")
    with pytest.raises(StoreUnavailable, match="waiting"):
        store.read(b"x")
    assert inner.calls == 2
    inner.gate.set()
    patient = Guarded(inner, timeout=60.0)
    assert patient.read(b"x") is None
    patient.close()


def test_a_forked_child_has_workers_of_its_own() -> None:
    inner = MemoryStore()
    inner.write(*entry("a"))
    store = Guarded(inner, timeout=60.0)
    assert store.read(entry("a")[0]) is not None

    def child() -> None:
        assert store.read(entry("a")[0]) is not None

    assert run_forked(child) == 0
    store.close()
