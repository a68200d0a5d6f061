"""A Cluster: masters that are killed and replaced, by a replica that may know less."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.support.engine import eventually, key
from tests.support.hosts import BYTES, Host, never
from tests.support.servers import ValkeyCluster

from trivet.cache import Cache
from trivet.errors import StoreUnavailable
from trivet.events import Tier
from trivet.stores.shared import Leases, ValkeyStore
from trivet.stores.shared.names import EPOCHS, entry_name
from trivet.testing import FakeClock

BOUND = 15.0  # seconds for one request: two time-outs, and asking others who is the master now
FAIL_OVER = 30.0  # seconds until a replica has taken over; mostly three


def test_entries_and_leases_are_on_all_masters(cluster: ValkeyCluster) -> None:
    store = ValkeyStore(cluster.url, timeout=10)
    leases = Leases(store)
    digests = [bytes([n]) * 32 for n in range(256)]  # those with braces among them
    for digest in digests:
        lease = leases.try_take(digest)
        assert lease is not None
        assert store.offer(digest, b"value of %d" % digest[0], lease.token, None)
        lease.release()
    assert {each.digest for each in store.scan()} == set(digests)
    assert all(cluster.ask(node, "DBSIZE") > 30 for node in cluster.nodes[:3])
    leases.close()
    store.close()


def test_one_server_of_a_cluster_named_alone_says_how_to_name_it(cluster: ValkeyCluster) -> None:
    store = ValkeyStore(cluster.nodes[0].url, timeout=10)
    far = next(
        digest
        for digest in (bytes([n]) * 32 for n in range(256))
        if cluster.master_of(entry_name(digest)) is not cluster.nodes[0]
    )
    with pytest.raises(StoreUnavailable) as caught:
        store.read(far)
    assert "valkey-cluster://" in str(caught.value.hint)
    store.close()


def test_any_server_that_is_named_and_alive_will_do(own_cluster: ValkeyCluster) -> None:
    own_cluster.nodes[4].kill()  # the other one that the url names
    with Cache.open(shared=own_cluster.url, strict=True, memory_bytes=0) as cache:
        assert cache.get_or_compute(key(), lambda: b"x", BYTES) == b"x"


@pytest.fixture
def hosts(own_cluster: ValkeyCluster, tmp_path: Path) -> Iterator[list[Host]]:
    """Two, whose clocks are real."""
    made = [Host(tmp_path / name, None, own_cluster.url, timeout=1) for name in "ab"]
    for host in made:
        host.wait_until_told()
    yield made
    for host in made:
        host.close()


class Asking:
    """Threads that ask for something again and again, and how long the longest look-up took."""

    def __init__(self, *works: Callable[[], object]) -> None:
        self.longest = 0.0
        self.count = 0
        self.errors: list[BaseException] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            while not self._ended.wait(0.002):
                started = time.monotonic()
                work()
                self.longest = max(self.longest, time.monotonic() - started)
                self.count += 1
        except BaseException as error:  # noqa: BLE001
            self.errors.append(error)

    def end(self) -> None:
        """Fails where one of them failed or was stuck."""
        self._ended.set()
        for thread in self._threads:
            thread.join(BOUND)
            assert not thread.is_alive(), "stuck"
        assert not self.errors, self.errors
        assert self.longest < BOUND


@pytest.mark.parametrize("victim", ["entry", "epochs"])
def test_a_killed_master_fails_nobody_and_what_was_invalidated_stays_so(
    own_cluster: ValkeyCluster, hosts: list[Host], tmp_path: Path, victim: str
) -> None:
    a, b = hosts
    version = [0]

    def current() -> bytes:
        return b"version %d" % version[0]

    a.value(current, tags=("t",))
    killed = own_cluster.master_of(entry_name(key().digest) if victim == "entry" else EPOCHS)

    numbers = count()

    def others() -> None:
        """Not to be had from memory."""
        assert b.value(lambda: b"x", name=key(f"other {next(numbers)}")) == b"x"

    assert b.value(never, tags=("t",)) == current()
    asking = Asking(others, others)
    killed.kill()
    eventually(lambda: not a.is_told() and not b.is_told(), "both have noticed", 5)

    def invalidated() -> bool:
        """The application's own order: change the source, then invalidate, then ask."""
        version[0] += 1
        try:
            a.cache.invalidate("t")
        except StoreUnavailable:
            version[0] -= 1  # nobody was told, and it says so
            return False
        return True

    eventually(invalidated, "another master answers for the epochs", FAIL_OVER)
    eventually(lambda: a.is_told() and b.is_told(), "both are told again", FAIL_OVER)
    for _ in range(5):
        assert invalidated()
        eventually(lambda: b.value(current, tags=("t",)) == current(), "b is told", 5)
        assert b.value(never, tags=("t",)) == current()
    asking.end()
    assert a.value(never, tags=("t",)) == current()
    c = Host(tmp_path / "c", None, own_cluster.url)
    hosts.append(c)
    assert c.value(never, tags=("t",)) == current(), "it is shared again"


def test_a_cluster_that_was_out_of_sight_as_a_whole_is_found_again(
    own_cluster: ValkeyCluster, tmp_path: Path
) -> None:
    clock = FakeClock()
    a, b = (Host(tmp_path / n, None, own_cluster.url, timeout=1, clock=clock) for n in "ab")
    a.value(lambda: b"x")
    own_cluster.kill()
    for n in range(10):
        a.value(lambda: b"alone", name=key(n))
    for node in own_cluster.nodes:
        node.start()
    eventually(
        lambda: b"cluster_state:ok" in own_cluster.ask(own_cluster.nodes[0], "CLUSTER", "INFO"),
        "the Cluster is ready",
        FAIL_OVER,
    )

    def shared() -> bool:
        clock.advance(60)
        a.value(lambda: b"again", name=key("n", at=clock.time()))
        return b.look(key("n", at=clock.time())) == (b"again", Tier.SHARED)

    eventually(shared, "both have found it again", FAIL_OVER)
    for host in (a, b):
        host.close()


def test_a_master_that_gives_up_its_place_and_gets_it_back_gives_no_epoch_twice(
    own_cluster: ValkeyCluster,
) -> None:
    store = ValkeyStore(own_cluster.url, timeout=10)
    seen = [store.epochs(["a"])["a"]]
    for _ in range(2):
        follower = own_cluster.nodes[
            (own_cluster.nodes.index(own_cluster.master_of(EPOCHS)) + 3) % 6
        ]
        own_cluster.ask(follower, "CLUSTER", "FAILOVER")
        eventually(lambda: own_cluster.master_of(EPOCHS) is follower, "it took over", FAIL_OVER)  # noqa: B023
        seen.append(store.epochs(["a"])["a"])
    assert len(set(seen)) == 3, "nothing was invalidated, and yet the last ones could be lost"
    store.close()


def test_a_replica_that_takes_over_by_request_is_listened_to(
    own_cluster: ValkeyCluster, tmp_path: Path
) -> None:
    a, b = (Host(tmp_path / n, None, own_cluster.url, clock=FakeClock()) for n in "ab")
    b.wait_until_told()
    a.value(lambda: b"old")
    assert b.value(never) == b"old"
    follower = own_cluster.swap(entry_name(key().digest))
    links = b.cache.engine.tiers.shared.near._push  # type: ignore[union-attr]
    port = follower.port

    def follows() -> bool:
        return b.is_told() and any(port == p for link in links._links for _, p in link._masters)

    eventually(follows, "b listens to the new master", FAIL_OVER)
    assert b.value(never) == b"old"
    a.rewrite(b"new")
    eventually(lambda: b.look() is not None and b.look()[0] == b"new", "b is told", 5)  # type: ignore[index]
    for host in (a, b):
        host.close()
