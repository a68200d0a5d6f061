"""Large values in Valkey: in pieces, whole or not at all, and only what is new is sent."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import key
from tests.support.hosts import Host, never
from tests.support.servers import Valkey, Wire

from trivet.cache import Miss
from trivet.codecs import Bytes
from trivet.entries import Descriptor, seal
from trivet.errors import CorruptEntry, StoreUnavailable
from trivet.events import EventKind, Tier
from trivet.stores.shared import Pieces, ValkeyStore
from trivet.stores.shared.names import entry_name
from trivet.stores.shared.pieces import WHOLE_BYTES, piece_name

LARGE = random.Random(5).randbytes(6 << 20)
ONE = b"\1" * 32


@pytest.fixture
def store(valkey: str) -> Iterator[ValkeyStore]:
    store = ValkeyStore(valkey, timeout=10)
    yield store
    store.close()


@pytest.fixture
def make_host(tmp_path: Path, valkey: str) -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def make(name: str, url: str = valkey) -> Host:
        hosts.append(Host(tmp_path / name, None, url))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


def sealed(payload: bytes, cost: float = 1.0) -> bytes:
    facts = Descriptor(codec="bytes/1", created=1.0, cost=cost, size=len(payload))
    return seal(key().canonical, facts, payload)


def pieces(store: ValkeyStore) -> list[bytes]:
    return sorted(store.client.scan_iter(match=b"trivet:piece:*"))


def test_hosts_share_a_large_value_and_nothing_long_is_in_the_server(
    make_host: Callable[..., Host], store: ValkeyStore
) -> None:
    a, b = make_host("a"), make_host("b")
    assert a.value(lambda: LARGE) == LARGE
    assert b.value(never) == LARGE
    assert [each.tier for each in b.events.of(EventKind.HIT)] == [Tier.SHARED]
    client: Any = store.client
    names = list(client.scan_iter())
    assert max(client.memory_usage(each) for each in names) < WHOLE_BYTES * 1.5
    assert len(pieces(store)) > 6


def test_only_what_has_changed_is_sent_again(
    valkey_server: Valkey, valkey: str, wire_to: Callable[[int], Wire]
) -> None:
    wire = wire_to(valkey_server.port)
    store = ValkeyStore(f"valkey://127.0.0.1:{wire.port}/0", timeout=20)
    large = Pieces(store)
    large.offer(ONE, sealed(LARGE), 0, None)
    assert wire.carried > len(LARGE)
    before = wire.carried
    changed = LARGE[: 3 << 20] + b"a few bytes" + LARGE[3 << 20 :]
    large.offer(ONE, sealed(changed, cost=2.0), 0, None)
    assert wire.carried - before < 1 << 20
    assert large.read(ONE) == sealed(changed, cost=2.0)
    store.close()


@pytest.mark.parametrize("megabytes", [0.5, 3, 5.9])
def test_a_host_that_is_cut_off_in_between_leaves_nothing_to_be_found(
    valkey_server: Valkey,
    store: ValkeyStore,
    wire_to: Callable[[int], Wire],
    megabytes: float,
) -> None:
    wire = wire_to(valkey_server.port)
    wire.stop_after = int(megabytes * (1 << 20))
    cut_off = ValkeyStore(f"valkey://127.0.0.1:{wire.port}/0", timeout=0.5)
    with pytest.raises(StoreUnavailable):
        Pieces(cut_off).offer(ONE, sealed(LARGE), 0, None)
    assert Pieces(store).read(ONE) is None
    left = pieces(store)
    assert left
    client: Any = store.client
    assert all(client.pttl(each) <= 3_600_000 for each in left), "they end within the hour"
    assert Pieces(store).offer(ONE, sealed(LARGE), 0, None)
    assert Pieces(store).read(ONE) == sealed(LARGE)
    with suppress(StoreUnavailable):
        cut_off.close()


def test_a_replaced_value_is_the_old_one_until_all_of_the_new_one_is_there(
    valkey_server: Valkey, store: ValkeyStore, wire_to: Callable[[int], Wire]
) -> None:
    Pieces(store).offer(ONE, sealed(LARGE), 0, None)
    other = random.Random(6).randbytes(6 << 20)
    wire = wire_to(valkey_server.port)
    wire.stop_after = 3 << 20
    with pytest.raises(StoreUnavailable):
        Pieces(ValkeyStore(f"valkey://127.0.0.1:{wire.port}/0", timeout=0.5)).offer(
            ONE, sealed(other), 0, None
        )
    assert Pieces(store).read(ONE) == sealed(LARGE)


def test_pieces_outlive_their_lists_also_those_of_another_value(store: ValkeyStore) -> None:
    large, client = Pieces(store), store.client
    large.offer(b"\2" * 32, sealed(LARGE), 0, 9000.0)
    large.offer(ONE, sealed(LARGE), 0, 100.0)
    for each in pieces(store):
        assert client.pttl(each) > 9_000_000
    large.offer(ONE, sealed(LARGE), 0, None)
    for each in pieces(store):
        assert client.pttl(each) > client.pttl(entry_name(ONE))


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_piece_that_is_not_what_it_was_is_a_miss_and_heals(
    make_host: Callable[..., Host], store: ValkeyStore, harm: str
) -> None:
    a, b, c = make_host("a"), make_host("b"), make_host("c")
    a.value(lambda: LARGE)
    piece, client = pieces(store)[2], store.client
    if harm == "missing":
        client.delete(piece)
    else:
        client.set(piece, b"x" * client.strlen(piece))
    calls: list[int] = []
    assert b.value(lambda: calls.append(1) or LARGE) == LARGE  # type: ignore[func-returns-value]
    assert calls == [1]
    assert [each.tier for each in b.events.of(EventKind.QUARANTINED)] == [Tier.SHARED]
    assert c.value(never) == LARGE


def test_a_list_that_is_not_of_this_value_is_refused(store: ValkeyStore) -> None:
    large, other = Pieces(store), sealed(bytes(8 << 20))
    large.offer(ONE, sealed(LARGE), 0, None)
    listed = store.read(ONE)
    assert listed is not None
    store.write(ONE, other[: len(other) - (8 << 20)] + listed[-200:])
    with pytest.raises(CorruptEntry):
        large.read(ONE)
    store.write(ONE, b"short")
    assert large.read(ONE) == b"short", "who judges it says what is wrong"


def test_forgetting_a_large_value_forgets_it_for_all(
    make_host: Callable[..., Host], store: ValkeyStore
) -> None:
    a, b = make_host("a"), make_host("b")
    a.value(lambda: LARGE)
    assert a.cache.forget(key())
    assert isinstance(b.cache.get(key(), Bytes()), Miss)


def test_small_values_stay_in_one_name(store: ValkeyStore) -> None:
    large = Pieces(store)
    large.offer(ONE, sealed(b"x" * 1000), 0, None)
    assert pieces(store) == []
    assert large.read(ONE) == store.read(ONE) == sealed(b"x" * 1000)
    assert piece_name(ONE) == b"trivet:piece:" + b"01" * 32
