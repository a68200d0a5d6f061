"""What one host made, the other one uses; what one invalidates, the other doesn't use."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.engine import eventually, key
from tests.support.hosts import BYTES, Host, never, read_plan
from xxhash import xxh3_128_digest

from trivet.aio import AsyncCache
from trivet.cache import Cache, Failed, Hit, Lease, Miss
from trivet.cache.shared import Shared
from trivet.entries import head_length
from trivet.errors import ComputeFailed, StoreUnavailable
from trivet.events import EventKind, MissReason, Tier
from trivet.stores.shared import ObjectStore, ValkeyStore
from trivet.testing import FakeClock

MakeHost = Callable[..., Host]
PLAN = b"plan"


@pytest.fixture
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str | None, str | None]:
    """Of objects and values, by the parameter; a folder where there is none."""
    kind = getattr(request, "param", "folder")
    objects = values = None
    if "folder" in kind:
        objects = f"file://{tmp_path}/shared"
    if "s3" in kind:
        objects = request.getfixturevalue("s3")
    if "valkey" in kind:
        values = request.getfixturevalue("valkey")
    return objects, values


@pytest.fixture
def make_host(tmp_path: Path, urls: tuple[str | None, str | None]) -> Iterator[MakeHost]:
    hosts: list[Host] = []

    def make(name: str, **options: object) -> Host:
        hosts.append(Host(tmp_path / name, *urls, **options))  # type: ignore[arg-type]
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


every_tier = pytest.mark.parametrize("urls", ["folder", "s3+valkey", "valkey"], indirect=True)
with_objects = pytest.mark.parametrize("urls", ["folder", "s3", "s3+valkey"], indirect=True)


# -- sharing -----------------------------------------------------------------------------------


@every_tier
def test_a_value_is_computed_once(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    assert a.value(lambda: b"x", tags=("t",)) == b"x"
    assert a.events.count(EventKind.SHARED) == 1
    assert b.value(never, tags=("t",)) == b"x"
    assert [each.tier for each in b.events.of(EventKind.HIT)] == [Tier.SHARED]
    assert b.value(never, tags=("t",)) == b"x"
    assert [each.tier for each in b.events.of(EventKind.HIT)][1:] == [Tier.MEMORY]


@every_tier
def test_what_was_fetched_is_this_hosts_from_then_on(
    make_host: MakeHost, tmp_path: Path, urls: tuple[str | None, str | None]
) -> None:
    a, b = make_host("a"), make_host("b")
    a.value(lambda: b"x", tags=("t",))
    b.value(never, tags=("t",))
    b.close()
    alone = Host(tmp_path / "b")
    assert alone.value(never, tags=("t",)) == b"x"


@with_objects
def test_a_plan_is_made_once(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    assert a.plan(PLAN, tags=("t",)) == (PLAN, True)
    assert b.plan(None, tags=("t",)) == (PLAN, False)
    assert b.plan(None, tags=("t",)) == (PLAN, False)
    assert [each.tier for each in b.events.of(EventKind.HIT)] == [Tier.SHARED, Tier.HOST]


@with_objects
def test_a_look_alone_finds_what_is_shared(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    a.plan(PLAN)
    a.value(lambda: b"x")
    found, value = b.cache.get_files(key("plan")), b.cache.get(key(), BYTES)
    assert isinstance(found, Hit)
    assert isinstance(value, Hit)
    assert (found.tier, value.tier) == (Tier.SHARED, Tier.SHARED)
    assert b.cache.get(key("nothing"), BYTES) == Miss(MissReason.ABSENT)


@every_tier
def test_a_large_value_is_shared(make_host: MakeHost) -> None:
    large = bytes(3 << 20)
    make_host("a").value(lambda: large)
    assert make_host("b").value(never) == large


@every_tier
def test_a_recorded_failure_is_shared(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")

    def fail() -> bytes:
        raise ValueError("unsupported")

    with pytest.raises(ValueError):
        a.cache.get_or_compute(key(), fail, BYTES, record=(ValueError,))
    with pytest.raises(ComputeFailed, match="unsupported"):
        b.cache.get_or_compute(key(), never, BYTES)


@with_objects
def test_a_recorded_failure_of_a_plan_is_shared(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    lease = a.cache.acquire_files(key("plan"))
    lease.refuse(ValueError("unsupported"), lifetime=100)  # type: ignore[union-attr]
    found = b.cache.acquire_files(key("plan"))
    assert isinstance(found, Failed)
    assert (found.error_text, found.tier) == ("unsupported", Tier.SHARED)


@every_tier
def test_what_is_abandoned_or_dropped_is_not_shared(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    for name, end in (
        ("n", lambda lease: lease.abandon()),
        ("m", lambda lease: lease.drop(b"", "")),
    ):
        end(a.cache.acquire(key(name), BYTES))
        found = b.cache.acquire(key(name), BYTES, wait=5)
        assert isinstance(found, Lease)
        assert found.reason is MissReason.ABSENT
        found.abandon()


@every_tier
def test_what_holds_on_one_host_alone_is_not_shared(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    here = a.cache.host_only
    assert here is a.cache.host_only
    assert here.get_or_compute(key(), lambda: b"inode 7", BYTES) == b"inode 7"
    assert a.cache.counts()["committed"] == 1
    assert b.cache.host_only.get_or_compute(key(), lambda: b"inode 8", BYTES) == b"inode 8"
    assert a.events.count(EventKind.SHARED) == b.events.count(EventKind.SHARED) == 0


@every_tier
def test_what_is_forgotten_does_not_come_back(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    a.value(lambda: b"x")
    b.value(never)
    assert b.cache.forget(key()) is True
    assert b.value(lambda: b"new") == b"new"
    assert b.cache.forget(key("nothing")) is False


# -- invalidation ------------------------------------------------------------------------------


@pytest.mark.parametrize("urls", ["folder", "s3"], indirect=True)
def test_an_invalidation_reaches_the_other_host(make_host: MakeHost) -> None:
    clock = FakeClock()
    a, b = make_host("a", clock=clock), make_host("b", clock=clock)
    a.value(lambda: b"old", tags=("t",))
    assert b.value(never, tags=("t",)) == b"old"
    a.cache.invalidate("t")
    assert b.value(never, tags=("t",)) == b"old", "within the bound, from memory"
    clock.advance(5.0)
    assert b.cache.engine.look_live(key(), BYTES) is None, "no input or output, so it can't be sure"
    assert b.value(lambda: b"new", tags=("t",)) == b"new"
    assert MissReason.INVALIDATED in b.events.reasons()
    assert a.value(never, tags=("t",)) == b"new"


@every_tier
def test_a_process_that_starts_later_knows_it_at_once(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    a.value(lambda: b"old", tags=("t",))
    b.value(never, tags=("t",))
    b.close()
    a.cache.invalidate("t")
    assert make_host("b").value(lambda: b"new", tags=("t",)) == b"new"


@every_tier
def test_tags_that_nobody_invalidated_stay_valid_and_so_do_entries_without(
    make_host: MakeHost,
) -> None:
    clock = FakeClock()
    a, b = make_host("a", clock=clock), make_host("b", clock=clock)
    a.value(lambda: b"x", tags=("t",))
    a.value(lambda: b"y", name=key("free"))
    b.value(never, tags=("t",))
    b.value(never, name=key("free"))
    a.cache.invalidate("other")
    clock.advance(60)
    assert b.value(never, tags=("t",)) == b"x"
    assert b.value(never, name=key("free")) == b"y"


@every_tier
def test_what_is_invalidated_elsewhere_while_it_is_made_is_used_by_nobody(
    make_host: MakeHost,
) -> None:
    a, b, c = make_host("a"), make_host("b"), make_host("c")

    def make() -> bytes:
        b.cache.invalidate("t")
        return b"of the old state"

    assert a.value(make, tags=("t",)) == b"of the old state"
    assert a.events.count(EventKind.SHARED) == 0
    assert c.value(lambda: b"new", tags=("t",)) == b"new"
    a.close()
    assert make_host("a").value(never, tags=("t",)) == b"new"


@every_tier
def test_a_tag_named_at_the_end_counts_from_the_start(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    lease = a.cache.acquire(key(), BYTES)
    assert isinstance(lease, Lease)
    b.cache.invalidate("found on the way")
    lease.commit(b"of the old state", tags=["found on the way"])
    assert make_host("a").value(lambda: b"new", tags=("found on the way",)) == b"new"
    assert b.value(never) == b"new"


@every_tier
def test_what_this_host_alone_invalidated_is_not_fetched_back(
    make_host: MakeHost, tmp_path: Path
) -> None:
    a, b = make_host("a"), make_host("b")
    a.value(lambda: b"old", tags=("t",))
    b.value(never, tags=("t",))
    b.close()
    unaware = Host(tmp_path / "b")  # a process without the shared tier
    unaware.cache.invalidate("t")
    unaware.close()
    again = make_host("b")
    assert again.value(lambda: b"new", tags=("t",)) == b"new"
    if again.values is None:
        assert a.value(never, tags=("t",)) == b"old", "it was told nothing"
    else:
        eventually(lambda: a.value(never, tags=("t",)) == b"new", "it is told of what b wrote")
    a.cache.invalidate("t")
    assert a.value(lambda: b"newest", tags=("t",)) == b"newest"
    third = make_host("b")
    assert third.value(never, tags=("t",)) == b"newest", "from then on both agree again"


@every_tier
def test_who_invalidated_takes_what_the_others_make_then(make_host: MakeHost) -> None:
    clock = FakeClock()
    a, b = make_host("a", clock=clock), make_host("b", clock=clock)
    a.value(lambda: b"old", tags=("t",))
    a.cache.invalidate("t")
    assert b.value(lambda: b"new", tags=("t",)) == b"new"
    assert a.value(never, tags=("t",)) == b"new"
    a.cache.invalidate("t", "never met")
    clock.advance(6)
    assert b.value(lambda: b"newest", tags=("t", "never met")) == b"newest"
    assert a.value(never, tags=("t", "never met")) == b"newest"


def test_an_invalidation_that_failed_holds_on_this_host_from_then_on(
    make_host: MakeHost, tmp_path: Path
) -> None:
    clock = FakeClock()
    b = make_host("b", clock=clock)
    b.value(lambda: b"old", tags=("t",))
    a = make_host("a")  # has never met the tag
    assert a.objects is not None
    a.objects.close()
    with pytest.raises(StoreUnavailable):
        a.cache.invalidate("t")
    again = make_host("a")
    assert again.value(lambda: b"new", tags=("t",)) == b"new"
    again.cache.invalidate("t")
    clock.advance(6)
    assert b.value(lambda: b"newest", tags=("t",)) == b"newest"
    assert make_host("a").value(never, tags=("t",)) == b"newest"


def test_an_invalidation_that_did_not_reach_the_others_says_so(
    make_host: MakeHost, tmp_path: Path
) -> None:
    a = make_host("a")
    a.value(lambda: b"old", tags=("t",))
    assert a.objects is not None
    a.objects.close()
    with pytest.raises(StoreUnavailable, match="other hosts could not be told"):
        a.cache.invalidate("t")
    assert a.value(lambda: b"new", tags=("t",)) == b"new", "this host did it"


def test_entries_from_before_there_was_a_shared_tier_are_made_again(
    make_host: MakeHost, tmp_path: Path
) -> None:
    before = Host(tmp_path / "a")
    before.value(lambda: b"x", tags=("t",))
    before.value(lambda: b"y", name=key("free"))
    before.close()
    a = make_host("a")
    assert a.value(lambda: b"new", tags=("t",)) == b"new", "who knows what was invalidated"
    assert a.value(never, name=key("free")) == b"y", "without tags nothing can be"


# -- time --------------------------------------------------------------------------------------


@every_tier
@pytest.mark.parametrize("skew", [-86400.0, -3600.0, 3600.0, 86400.0])
def test_clocks_that_differ_never_lengthen_a_life(make_host: MakeHost, skew: float) -> None:
    # Lifetimes are in wall-clock time: on a host whose clock is wrong an entry is not used at all,
    # rather than for too long.
    a = make_host("a", clock=FakeClock(1e9))
    b = make_host("b", clock=FakeClock(1e9 + skew))
    a.value(lambda: b"x", lifetime=600)
    a.value(lambda: b"for ever", name=key("for ever"))
    assert b.value(lambda: b"y", lifetime=600) == b"y"
    assert b.value(never, name=key("for ever")) == b"for ever"


@pytest.mark.parametrize("urls", ["s3+valkey"], indirect=True)
@pytest.mark.parametrize("skew", [-5 * 3600.0, 5 * 3600.0])
def test_hosts_whose_clocks_are_hours_apart_share_wait_and_invalidate(
    make_host: MakeHost, skew: float
) -> None:
    clocks = FakeClock(1e9), FakeClock(1e9 + skew)
    a, b = (make_host(name, clock=clock) for name, clock in zip("ab", clocks, strict=True))
    assert a.plan(PLAN, tags=("t",)) == (PLAN, True)
    assert b.plan(None, tags=("t",)) == (PLAN, False)
    held = b.cache.acquire(key("held"), BYTES)
    assert isinstance(held, Lease)
    found = a.cache.acquire(key("held"), BYTES, wait=1)
    assert isinstance(found, Lease)
    assert found.reason is MissReason.WAIT_TIMEOUT, "the lease is held, whatever the time"
    found.abandon()
    held.commit(b"x")
    assert a.value(never, name=key("held")) == b"x"
    b.cache.invalidate("t")
    clocks[0].advance(6)
    assert a.plan(b"new", tags=("t",)) == (b"new", True)
    assert b.plan(None, tags=("t",)) == (b"new", False)


@every_tier
def test_a_life_ends_on_all_hosts(make_host: MakeHost) -> None:
    a, b = (make_host(name, clock=FakeClock(1e9)) for name in "ab")
    a.value(lambda: b"x", lifetime=600)
    assert b.value(never, lifetime=600) == b"x"
    b.cache.clock.sleep(601)
    assert b.value(lambda: b"y", lifetime=600) == b"y"


# -- damage ------------------------------------------------------------------------------------


def damage(shared: Path, kind: str, folder: str) -> None:
    """Damage the largest file in a folder of the shared tier."""
    path = max((shared / folder).iterdir(), key=lambda each: each.stat().st_size)
    raw = bytearray(path.read_bytes())
    if kind == "flipped":
        raw[len(raw) // 2] ^= 1
    path.write_bytes(raw[: len(raw) // 2] if kind == "cut" else raw)
    if kind == "missing":
        path.unlink()


@pytest.mark.parametrize("kind", ["flipped", "cut", "missing"])
@pytest.mark.parametrize("folder", ["blobs", "entries"])
def test_damage_in_the_shared_tier_is_refused_and_healed(
    make_host: MakeHost, tmp_path: Path, kind: str, folder: str
) -> None:
    a, b, c = (make_host(name) for name in "abc")
    a.plan(PLAN)
    damage(tmp_path / "shared", kind, folder)
    assert b.plan(PLAN) == (PLAN, True)
    if (folder, kind) != ("entries", "missing"):
        set_aside = b.events.of(EventKind.QUARANTINED)
        assert [each.tier for each in set_aside] == [Tier.SHARED]
    assert c.plan(None) == (PLAN, False)
    assert a.plan(None) == (PLAN, False)


def test_damage_on_this_hosts_disk_is_healed_from_the_shared_tier(
    make_host: MakeHost, tmp_path: Path
) -> None:
    a = make_host("a")
    a.plan(PLAN)
    found = a.cache.get_files(key("plan"))
    assert isinstance(found, Hit)
    path = found.value.verify() / "deep" / "plan.bin"
    path.chmod(0o600)
    path.write_bytes(b"rot")
    assert a.cache.quarantine_files(found.value, "damaged")
    assert a.plan(None) == (PLAN, False)


@with_objects
def test_what_this_host_can_not_use_is_not_fetched_again(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    a.plan(PLAN)
    b.plan(None)
    found = b.cache.get_files(key("plan"))
    assert isinstance(found, Hit)
    assert b.cache.quarantine_files(found.value, "another answer than where it was made")
    assert b.plan(b"mine") == (b"mine", True)
    assert make_host("b").plan(None) == (b"mine", False)
    assert make_host("c").plan(None) == (PLAN, False), "others judge for themselves"


def test_a_plan_that_kills_its_process_is_not_fetched_again(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    a.plan(PLAN)
    b.plan(None)
    assert b.cache.store is not None
    mark = key("plan").digest + b"-" + bytes(8)  # of a process that is no more
    (b.cache.store.root / "journal" / mark.hex()).touch()
    assert b.plan(b"mine") == (b"mine", True)
    assert b.events.of(EventKind.QUARANTINED)[0].reason is MissReason.CRASHED


def test_an_entry_of_another_key_is_not_used(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    a.value(lambda: b"of another key", name=key("other"))
    assert a.objects is not None
    sealed = a.objects.read(key("other").digest)
    assert sealed is not None
    a.objects.write(key().digest, sealed)
    assert b.cache.get(key(), BYTES).reason is MissReason.KEY_MISMATCH  # type: ignore[union-attr]
    assert b.value(lambda: b"x") == b"x"


def test_the_cryptographic_digest_counts(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    a.value(lambda: b"x")
    assert a.objects is not None
    raw = bytearray(a.objects.read(key().digest) or b"")
    raw[64] ^= 1  # of the BLAKE3; the fast checksum is made to fit
    raw[8:24] = xxh3_128_digest(raw[24 : head_length(raw)])
    a.objects.write(key().digest, bytes(raw))
    assert b.cache.get(key(), BYTES).reason is MissReason.CORRUPT  # type: ignore[union-attr]


def test_a_valid_entry_is_not_replaced(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    first, second = (each.cache.acquire(key(), BYTES) for each in (a, b))
    assert isinstance(first, Lease), "without a Valkey hosts don't wait for each other"
    assert isinstance(second, Lease)
    first.commit(b"first")
    second.commit(b"second")
    assert b.events.count(EventKind.SHARED) == 0
    assert make_host("c").value(never) == b"first"


# -- waiting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("urls", ["valkey", "folder+valkey"], indirect=True)
def test_a_host_waits_for_another_one_and_gets_its_value(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    lease = a.cache.acquire(key(), BYTES)
    assert isinstance(lease, Lease)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(b.value(never)))
    thread.start()
    eventually(
        lambda: any(each.tier is Tier.SHARED for each in b.events.of(EventKind.WAITED)), "b waits"
    )
    lease.commit(b"x")
    thread.join(30)
    assert got == [b"x"]


@pytest.mark.parametrize("urls", ["valkey"], indirect=True)
def test_waiting_is_bounded(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b", clock=FakeClock())
    lease = a.cache.acquire(key(), BYTES)
    found = b.cache.acquire(key(), BYTES, wait=120)
    assert isinstance(found, Lease)
    assert found.reason is MissReason.WAIT_TIMEOUT
    found.commit(b"alone")
    assert b.events.count(EventKind.SHARED) == 0, "somebody else holds the lease"
    lease.commit(b"at last")  # type: ignore[union-attr]
    eventually(lambda: b.value(never) == b"at last", "what the holder made is everybody's")


@pytest.mark.parametrize("urls", ["valkey"], indirect=True)
def test_plans_are_not_waited_for_where_they_can_not_be_shared(make_host: MakeHost) -> None:
    a, b = make_host("a"), make_host("b")
    held = a.cache.acquire_files(key("plan"))
    assert b.plan(b"mine", wait=300) == (b"mine", True)
    held.abandon()  # type: ignore[union-attr]


# -- other faces and forms of a host -----------------------------------------------------------


@every_tier
def test_coroutines_share_too(make_host: MakeHost) -> None:
    clock = FakeClock()
    a, b = make_host("a", clock=clock), make_host("b", clock=clock)

    async def make() -> bytes:
        return b"x"

    async def main(host: Host) -> bytes:
        return await AsyncCache(host.cache).get_or_compute(key(), make, BYTES, tags=("t",))

    async def ask(host: Host) -> object:
        return await AsyncCache(host.cache).acquire(key(), BYTES, tags=("t",))

    assert asyncio.run(main(a)) == b"x"
    found = asyncio.run(ask(b))
    assert isinstance(found, Hit)
    assert found.tier is Tier.SHARED
    a.cache.invalidate("t")
    clock.advance(6)
    lease = asyncio.run(ask(b))
    assert isinstance(lease, Lease)
    lease.abandon()


@every_tier
def test_a_host_without_a_folder_shares_values_and_uses_plans(
    make_host: MakeHost, urls: tuple[str | None, str | None]
) -> None:
    a = make_host("a")
    a.value(lambda: b"x", tags=("t",))
    objects = None if urls[0] is None else ObjectStore(urls[0])
    values = None if urls[1] is None else ValkeyStore(urls[1])
    bare = Cache(shared=Shared(objects, values))
    assert bare.get_or_compute(key(), never, BYTES, tags=("t",)) == b"x"
    assert bare.get_or_compute(key("n"), lambda: b"n", BYTES) == b"n"
    assert a.value(never, name=key("n")) == b"n"
    if objects is not None:
        a.plan(PLAN)
        found = bare.get_files(key("plan"))
        assert isinstance(found, Hit)
        folder = found.value.verify()
        assert read_plan(found.value) == PLAN
        del found
        assert not folder.exists(), "it lives as long as the object"
    a.cache.invalidate("t")
    bare.close()
    later = Cache(shared=Shared.open([url for url in urls if url is not None]))
    assert later.get_or_compute(key(), lambda: b"new", BYTES, tags=("t",)) == b"new"
    later.close()


@with_objects
def test_a_forked_child_goes_on_with_what_it_can_use(make_host: MakeHost) -> None:
    a = make_host("a")
    a.value(lambda: b"x", tags=("t",))
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            right = a.value(never, tags=("t",)) == b"x" and (
                a.value(lambda: b"new", name=key("n"), tags=("t",)) == b"new"
            )
            status = 0 if right else 1
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert a.value(never, tags=("t",)) == b"x"
