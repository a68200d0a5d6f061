"""Leases of all hosts: one holder, a heartbeat, a time-out, a number that only grows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.engine import eventually, finish, start
from tests.support.servers import Valkey

from trivet.errors import StoreUnavailable
from trivet.stores.shared import Leases, ValkeyStore
from trivet.stores.shared.names import entry_name, last_lease_name, lease_name

ONE = b"\1" * 32


@pytest.fixture
def store(valkey: str) -> Iterator[ValkeyStore]:
    store = ValkeyStore(valkey, timeout=10)
    yield store
    store.close()


@pytest.fixture
def leases(store: ValkeyStore) -> Iterator[Leases]:
    leases = Leases(store)
    yield leases
    leases.close()


def test_one_holds_it_and_the_next_gets_a_larger_number(store: ValkeyStore, leases: Leases) -> None:
    other = Leases(store)
    first = leases.try_take(ONE)
    assert first is not None
    assert other.try_take(ONE) is None
    assert other.try_take(b"\2" * 32) is not None
    first.release()
    second = other.try_take(ONE)
    assert second is not None
    assert second.token > first.token
    first.release()  # late, and harmless
    assert second.still_held()
    assert leases.try_take(ONE) is None


def test_the_heartbeat_keeps_it(store: ValkeyStore) -> None:
    leases = Leases(store, seconds=1.0)
    lease = leases.try_take(ONE)
    left = [store.client.pttl(lease_name(ONE))]

    def grew() -> bool:
        left.append(store.client.pttl(lease_name(ONE)))
        return left[-1] > left[-2]

    for _ in range(4):  # longer than a lease lives without
        eventually(grew, "the lease is extended")
    assert lease is not None
    assert lease.still_held()
    leases.close()
    eventually(lambda: Leases(store).try_take(ONE) is not None, "it ends without the heartbeat")
    assert not lease.still_held()


def test_who_lost_it_is_told(store: ValkeyStore, leases: Leases) -> None:
    lease = leases.try_take(ONE)
    assert lease is not None
    store.client.delete(lease_name(ONE))
    leases.beat()
    assert lease.lost
    assert not lease.still_held()


def test_numbers_grow_although_the_clock_is_set_back(store: ValkeyStore, leases: Leases) -> None:
    store.client.set(last_lease_name(ONE), f"{5 * 10**15:016d}")
    lease = leases.try_take(ONE)
    assert lease is not None
    assert lease.token == 10**15 * 5 + 1


def test_numbers_grow_although_the_server_forgot(own_valkey: Valkey) -> None:
    store = ValkeyStore(own_valkey.url, timeout=10)
    leases = Leases(store)
    first = leases.try_take(ONE)
    own_valkey.kill()
    own_valkey.start()
    second = leases.try_take(ONE)
    assert first is not None
    assert second is not None
    assert second.token > first.token
    leases.close()


def test_a_killed_server_is_an_error_for_who_takes_and_none_for_who_releases(
    own_valkey: Valkey,
) -> None:
    leases = Leases(ValkeyStore(own_valkey.url, timeout=1))
    lease = leases.try_take(ONE)
    own_valkey.kill()
    with pytest.raises(StoreUnavailable):
        leases.try_take(b"\2" * 32)
    assert lease is not None
    leases.beat()
    assert not lease.lost, "nobody else can have taken it"
    lease.release()
    leases.close()


def test_a_late_writer_replaces_nothing(store: ValkeyStore, leases: Leases) -> None:
    late, now = leases.try_take(ONE), None
    assert late is not None
    store.client.delete(lease_name(ONE))  # it was stopped for too long
    now = leases.try_take(ONE)
    assert now is not None
    assert store.offer(ONE, b"late", late.token, None) is False, "somebody else holds it"
    assert store.offer(ONE, b"now", now.token, None) is True
    now.release()
    assert store.offer(ONE, b"late", late.token, None) is False, "somebody else has written"
    assert store.read(ONE) == b"now"


def test_an_offer_ends_with_its_lifetime(store: ValkeyStore) -> None:
    assert store.offer(ONE, b"x", 1, 100.0)
    assert 90_000 < store.client.pttl(entry_name(ONE)) <= 100_000


def test_a_forked_child_leaves_the_lease_to_its_parent(valkey: str) -> None:
    code = """
import os, sys
from trivet.stores.shared import Leases, ValkeyStore
store = ValkeyStore(sys.argv[1], timeout=10)
leases = Leases(store)
lease = leases.try_take(bytes(32))
if os.fork() == 0:
    lease.release()
    mine = leases.try_take(b"x" * 32)   # with a heartbeat of its own
    assert leases.try_take(bytes(32)) is None
    mine.release()
    os._exit(0)
assert os.wait()[1] == 0
assert lease.still_held()
"""
    finish(start(code, valkey))


def test_who_lost_it_takes_it_from_nobody(store: ValkeyStore, leases: Leases) -> None:
    late = leases.try_take(ONE)
    assert late is not None
    store.client.delete(lease_name(ONE))
    now = leases.try_take(ONE)
    assert now is not None
    assert not late.still_held()
    late.release()
    assert now.still_held()
