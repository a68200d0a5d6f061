"""Layers below the host's tier: hits in place, hidden by what this host invalidates or drops."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.bundles import (
    files_below,
    keep,
    listed,
    make_bundle,
    plan_files,
    plan_key,
    read_plan,
)
from tests.support.engine import finish, start

from trivet.aio import AsyncCache
from trivet.cache import Artifact, ArtifactLease, Cache, Failed, Hit, Miss
from trivet.codecs import MsgPack
from trivet.entries import Descriptor, seal
from trivet.errors import CorruptEntry, StoreReadOnly, StoreUnavailable, UnsafeFolder
from trivet.events import EventKind, MissReason, Tier
from trivet.keys import Key
from trivet.plans import bundles
from trivet.stores.bundles import Bundle, Source, write_bundle
from trivet.stores.layers import Layer, install
from trivet.testing import FakeClock, Recorder

TEXT = MsgPack(str)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    bundles.install(make_bundle(tmp_path, range(3)), tmp_path / "layer", allow_unsigned=True)
    return tmp_path / "layer"


@pytest.fixture
def open_cache(tmp_path: Path, root: Path) -> Iterator[Callable[..., Cache]]:
    opened = []

    def make(**options: object) -> Cache:
        options = {"layers": [root], "strict": True, **options}
        opened.append(Cache.open(tmp_path / "cache", **options))  # type: ignore[arg-type]
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def hit(cache: Cache, n: int) -> Artifact:
    found = cache.get_files(plan_key(n))
    assert isinstance(found, Hit), found
    return found.value


def reason(cache: Cache, n: int) -> MissReason:
    found = cache.get_files(plan_key(n))
    assert isinstance(found, Miss), found
    return found.reason


OpenCache = Callable[..., Cache]


def test_a_hit_is_served_in_place_and_nothing_is_copied(
    open_cache: OpenCache, root: Path, tmp_path: Path
) -> None:
    events = Recorder()
    cache = open_cache(sink=events)
    assert read_plan(cache, 1) == plan_files(1)
    assert root in hit(cache, 1).verify().parents
    assert {each.tier for each in events.of(EventKind.HIT)} == {Tier.LAYER}
    assert not any("model.bin" in each for each in files_below(tmp_path / "cache"))


def test_what_the_layer_lacks_is_made_and_kept_above_it(
    open_cache: OpenCache, root: Path, tmp_path: Path
) -> None:
    before = files_below(root)
    with open_cache() as cache:
        keep(cache, plan_key(7), plan_files(7))
    assert files_below(root) == before
    with Cache.open(tmp_path / "cache", strict=True) as alone:
        assert read_plan(alone, 7) == plan_files(7)


def test_a_lease_is_given_only_for_what_no_layer_has(open_cache: OpenCache) -> None:
    cache = open_cache()
    assert isinstance(cache.acquire_files(plan_key(0)), Hit)
    lease = cache.acquire_files(plan_key(8))
    assert isinstance(lease, ArtifactLease)
    lease.abandon()


def test_other_keys_that_answer_as_well_are_looked_for_in_layers(open_cache: OpenCache) -> None:
    found = open_cache().get_files(plan_key(8), also=(plan_key(9), plan_key(2)))
    assert isinstance(found, Hit)
    assert found.value.key == plan_key(2)


def test_the_cache_folder_comes_first(open_cache: OpenCache) -> None:
    cache = open_cache()
    cache.forget(plan_key(0))
    keep(cache, plan_key(0), {"mine": b"1"})
    assert read_plan(cache, 0) == {"mine": b"1"}
    assert listed(cache)[0].layer is None


def test_the_first_layer_comes_first(open_cache: OpenCache, tmp_path: Path, root: Path) -> None:
    with Cache.open(tmp_path / "h", strict=True) as cache:
        keep(cache, plan_key(0), {"other": b"2"})
        bundles.create(cache, tmp_path / "b")
    bundles.install(tmp_path / "b", tmp_path / "upper", allow_unsigned=True)
    cache = open_cache(layers=[tmp_path / "upper", root])
    assert read_plan(cache, 0) == {"other": b"2"}
    assert read_plan(cache, 1) == plan_files(1)


# -- hiding ----------------------------------------------------------------------------------------


def test_an_invalidated_tag_hides_what_the_layer_has(open_cache: OpenCache) -> None:
    cache = open_cache()
    assert cache.invalidate("graph=1") == {"graph=1": 1}
    assert reason(cache, 1) is MissReason.INVALIDATED
    assert read_plan(cache, 2) == plan_files(2)
    cache.invalidate("release=r1")
    assert {each.invalid for each in listed(cache).values()} == {MissReason.INVALIDATED}


def test_it_stays_hidden_for_every_process(
    open_cache: OpenCache, tmp_path: Path, root: Path
) -> None:
    with open_cache():
        pass
    with Cache.open(tmp_path / "cache", strict=True) as without:
        without.invalidate("graph=1")  # by who knows of no layer
    code = """
import sys
from trivet.cache import Cache
from tests.support.bundles import plan_key
with Cache.open(sys.argv[1], layers=[sys.argv[2]], strict=True) as cache:
    print(*[cache.get_files(plan_key(n)).__class__.__name__ for n in range(3)])
"""
    child = start(
        f"import sys; sys.path.insert(0, {os.getcwd()!r})\n" + code, tmp_path / "cache", root
    )
    assert finish(child).split() == ["Hit", "Miss", "Hit"]


def test_what_was_invalidated_before_the_bundle_came_doesn_t_hide_it(
    open_cache: OpenCache, tmp_path: Path
) -> None:
    with Cache.open(tmp_path / "cache", strict=True) as cache:
        cache.invalidate("release=r1", "graph=0")
    assert read_plan(open_cache(), 0) == plan_files(0)


def test_a_new_bundle_is_seen_afresh(open_cache: OpenCache, tmp_path: Path, root: Path) -> None:
    cache = open_cache()
    cache.invalidate("release=r1")
    assert reason(cache, 0) is MissReason.INVALIDATED
    with Cache.open(tmp_path / "again", strict=True) as other:
        keep(other, plan_key(0), {"made": b"anew"}, tags=("release=r1",))
        bundles.create(other, tmp_path / "again.trivet")
    bundles.install(tmp_path / "again.trivet", root, allow_unsigned=True)
    assert read_plan(cache, 0) == {"made": b"anew"}
    cache.invalidate("release=r1")
    assert reason(cache, 0) is MissReason.INVALIDATED


def test_a_note_that_is_damaged_hides_rather_than_shows(
    open_cache: OpenCache, tmp_path: Path
) -> None:
    with open_cache() as cache:
        cache.invalidate("release=r1")
    (note,) = [each for each in (tmp_path / "cache/layers").iterdir() if each.name != "lock"]
    note.write_bytes(b"x" + note.read_bytes())
    assert reason(open_cache(), 0) is MissReason.INVALIDATED


def test_many_who_see_it_first_agree(open_cache: OpenCache) -> None:
    open_cache().close()
    caches = [open_cache() for _ in range(4)]
    threads = [threading.Thread(target=read_plan, args=(each, 0)) for each in caches]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    caches[0].invalidate("graph=0")
    assert {reason(each, 0) for each in caches} == {MissReason.INVALIDATED}


def test_what_is_forgotten_is_hidden_and_can_be_made_again(open_cache: OpenCache) -> None:
    cache, other = open_cache(), open_cache()
    assert cache.forget(plan_key(1))
    assert not cache.forget(plan_key(1))
    assert reason(cache, 1) is MissReason.INVALIDATED
    assert reason(other, 1) is MissReason.INVALIDATED
    assert read_plan(other, 2) == plan_files(2)
    keep(cache, plan_key(1), {"new": b"1"})
    assert read_plan(other, 1) == {"new": b"1"}


def test_all_can_be_hidden(open_cache: OpenCache) -> None:
    cache = open_cache()
    cache.hide_layers()
    assert {reason(cache, n) for n in range(3)} == {MissReason.INVALIDATED}
    assert {reason(open_cache(), n) for n in range(3)} == {MissReason.INVALIDATED}


# -- damage ----------------------------------------------------------------------------------------


def damage_entry(root: Path, n: int) -> None:
    (entry,) = root.glob(f"bundles/*/entries/{plan_key(n).digest.hex()}")
    raw = bytearray(entry.read_bytes())
    raw[-1] ^= 1
    entry.write_bytes(raw)


def test_a_damaged_entry_is_a_miss_once_and_hidden_then(open_cache: OpenCache, root: Path) -> None:
    damage_entry(root, 1)
    events = Recorder()
    cache = open_cache(sink=events)
    assert reason(cache, 1) is MissReason.CORRUPT
    assert reason(cache, 1) is MissReason.INVALIDATED
    assert reason(open_cache(), 1) is MissReason.INVALIDATED
    assert [each.tier for each in events.of(EventKind.QUARANTINED)] == [Tier.LAYER]
    assert read_plan(cache, 0) == plan_files(0)


def test_damaged_files_are_found_and_set_aside(open_cache: OpenCache, root: Path) -> None:
    (file,) = root.glob(f"bundles/*/files/{plan_key(1).digest.hex()}/plan/model.bin")
    file.write_bytes(bytes(file.stat().st_size))
    cache = open_cache()
    artifact = hit(cache, 1)
    with pytest.raises(CorruptEntry):
        artifact.verify()
    assert cache.holds(artifact)
    assert cache.quarantine_files(artifact, "damaged")
    assert reason(cache, 1) is MissReason.INVALIDATED
    assert file.exists()


def test_a_replaced_artifact_is_not_to_blame(
    open_cache: OpenCache, root: Path, tmp_path: Path
) -> None:
    cache = open_cache()
    artifact = hit(cache, 1)
    other = make_bundle(tmp_path, range(1, 2), release="r2")
    bundles.install(other, root, allow_unsigned=True, replace=True)
    assert not cache.holds(artifact)
    assert not cache.quarantine_files(artifact, "its files are gone")
    assert read_plan(cache, 1) == plan_files(1)


def test_what_killed_a_process_while_it_was_loaded_is_not_loaded_again(
    open_cache: OpenCache, tmp_path: Path, root: Path
) -> None:
    code = """
import os, signal, sys
from trivet.cache import Cache
from tests.support.bundles import plan_key
cache = Cache.open(sys.argv[1], layers=[sys.argv[2]], strict=True)
with cache.get_files(plan_key(0)).value.loading():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    child = start(
        f"import sys; sys.path.insert(0, {os.getcwd()!r})\n" + code, tmp_path / "cache", root
    )
    child.communicate(timeout=60)
    assert child.returncode == -9
    cache = open_cache()
    assert reason(cache, 0) is MissReason.CRASHED
    assert reason(cache, 0) is MissReason.INVALIDATED


def test_a_key_is_quarantined_where_it_lies(open_cache: OpenCache) -> None:
    cache = open_cache()
    cache.quarantine(plan_key(0), "unusable here")
    assert reason(cache, 0) is MissReason.INVALIDATED
    cache.forget(plan_key(1))
    keep(cache, plan_key(1), {"x": b""})
    cache.quarantine(plan_key(1), "the one in the folder")
    assert isinstance(cache.get_files(plan_key(1)), Miss)


def test_a_key_of_the_same_digest_is_no_hit(open_cache: OpenCache, root: Path) -> None:
    (mine,) = root.glob(f"bundles/*/entries/{plan_key(0).digest.hex()}")
    (other,) = root.glob(f"bundles/*/entries/{plan_key(1).digest.hex()}")
    mine.write_bytes(other.read_bytes())
    assert reason(open_cache(), 0) is MissReason.KEY_MISMATCH


# -- where there is no folder, or none to be written -----------------------------------------------


def test_in_memory_alone_layers_are_used_and_can_be_hidden(root: Path) -> None:
    cache = Cache(layers=[Layer(root)])
    assert read_plan(cache, 0) == plan_files(0)
    cache.invalidate("graph=0")
    assert reason(cache, 0) is MissReason.INVALIDATED
    assert cache.forget(plan_key(1))
    assert reason(cache, 1) is MissReason.INVALIDATED
    assert read_plan(cache, 2) == plan_files(2)
    assert read_plan(Cache(layers=[Layer(root)]), 0) == plan_files(0)


def test_where_the_folder_can_only_be_read_a_process_hides_for_itself(
    open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_cache()

    def refuse(*_: object) -> None:
        raise StoreReadOnly("a read-only disk")

    monkeypatch.setattr(cache.store, "raise_epochs", refuse)
    cache.quarantine(plan_key(0), "unusable")
    assert reason(cache, 0) is MissReason.INVALIDATED
    assert read_plan(open_cache(), 0) == plan_files(0)


def test_one_layer_may_be_named_alone(tmp_path: Path, root: Path) -> None:
    for layers in (root, str(root)):
        with Cache.open(tmp_path / "c", layers=layers, strict=True) as cache:
            assert read_plan(cache, 0) == plan_files(0)


def test_a_layer_that_can_t_be_used_costs_only_itself(
    tmp_path: Path, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "bundles").chmod(0o777)
    events = Recorder()
    with caplog.at_level(logging.WARNING, "trivet"):
        cache = Cache.open(tmp_path / "c", layers=[root, tmp_path / "none"], sink=events)
    assert cache.layers == ()
    assert reason(cache, 0) is MissReason.ABSENT
    assert len(events.of(EventKind.TIER_FAILED)) == 2
    assert "can be written by everybody" in caplog.text
    with pytest.raises(UnsafeFolder):
        Cache.open(tmp_path / "c", layers=[root], strict=True)
    with pytest.raises(StoreUnavailable):
        Cache.open(tmp_path / "c", layers=[tmp_path / "none"], strict=True)


def test_a_layer_that_vanishes_is_a_miss(open_cache: OpenCache, root: Path) -> None:
    cache = open_cache()
    assert read_plan(cache, 0) == plan_files(0)
    os.rename(root, root.with_name("gone"))
    assert reason(cache, 0) is MissReason.ABSENT


def test_what_can_t_be_read_is_an_event(open_cache: OpenCache, root: Path) -> None:
    events = Recorder()
    cache = open_cache(sink=events, strict=False)
    (root / "layer.json").write_bytes(b"{")
    assert reason(cache, 0) is MissReason.UNAVAILABLE
    (event,) = events.of(EventKind.TIER_FAILED)
    assert event.tier is Tier.LAYER


def test_looking_around_goes_on_without_a_layer_that_can_t_be_read(
    open_cache: OpenCache, root: Path
) -> None:
    cache = open_cache()
    keep(cache, plan_key(5), {})
    (root / "layer.json").write_bytes(b"{")
    assert set(listed(cache)) == {5}
    assert cache.forget(plan_key(5))
    assert not cache.forget(plan_key(0))
    cache.hide_layers()


def test_the_asyncio_face_sees_layers(open_cache: OpenCache) -> None:
    async def look() -> Tier:
        found = await AsyncCache(open_cache()).acquire_files(plan_key(1))
        assert isinstance(found, Hit)
        return found.tier

    assert asyncio.run(look()) is Tier.LAYER


# -- values, failures, other views -----------------------------------------------------------------


def value_layer(tmp_path: Path, value: str, clock: FakeClock, *, raw: bytes | None = None) -> Path:
    key = Key("test/1", {"what": "value"})
    facts = Descriptor(
        codec=TEXT.id, created=clock.time(), tags={"t": 0}, expires=clock.time() + 100
    )
    sealed = seal(key.canonical, facts, TEXT.encode(value) if raw is None else raw)
    write_bundle(tmp_path / "v", [Source(key.digest, lambda: (sealed, None))])
    with Bundle.open(tmp_path / "v") as bundle:
        install(bundle, tmp_path / "values")
    return tmp_path / "values"


def test_values_are_served_too_and_kept_alive(tmp_path: Path) -> None:
    clock, events, key = FakeClock(), Recorder(), Key("test/1", {"what": "value"})
    layer = value_layer(tmp_path, "x" * 100_000, clock)
    cache = Cache.open(tmp_path / "c", layers=[layer], strict=True, clock=clock, sink=events)
    for _ in range(2):
        assert cache.get(key, TEXT).value == "x" * 100_000  # type: ignore[union-attr]
    assert [each.tier for each in events.of(EventKind.HIT)] == [Tier.LAYER, Tier.MEMORY]
    cache.invalidate("t")
    assert cache.get(key, TEXT) == Miss(MissReason.INVALIDATED)
    with Cache.open(tmp_path / "d", layers=[layer], strict=True, clock=clock) as other:
        assert isinstance(other.get(key, TEXT), Hit)
        clock.advance(101)
        assert other.get(key, TEXT) == Miss(MissReason.EXPIRED)
        assert other.get(key, MsgPack(int)) == Miss(MissReason.EXPIRED)


def test_a_value_that_can_t_be_decoded_is_damage(tmp_path: Path) -> None:
    clock, key = FakeClock(), Key("test/1", {"what": "value"})
    layer = value_layer(tmp_path, "", clock, raw=b"\xc1")
    cache = Cache.open(tmp_path / "c", layers=[layer], strict=True, clock=clock)
    assert cache.get(key, TEXT).reason is MissReason.CORRUPT  # type: ignore[union-attr]
    assert cache.get(key, TEXT).reason is MissReason.INVALIDATED  # type: ignore[union-attr]


def test_a_failure_recorded_here_doesn_t_hide_what_was_installed_since(
    tmp_path: Path, root: Path, open_cache: OpenCache
) -> None:
    with Cache.open(tmp_path / "cache", strict=True) as cache:
        for n in (0, 9):
            lease = cache.acquire_files(plan_key(n))
            lease.refuse(ValueError("unsupported"), lifetime=100)  # type: ignore[union-attr]
    cache = open_cache()
    assert read_plan(cache, 0) == plan_files(0)
    assert isinstance(cache.get_files(plan_key(9)), Failed)


def test_a_layer_that_can_not_be_listed_for_a_moment_is_not_hidden_for_good(
    tmp_path: Path, root: Path
) -> None:
    """What a host notes at first sight never changes: nothing is noted of what it did not see."""
    (entries,) = (root / "bundles").glob("*/entries")
    entries.rename(tmp_path / "aside")
    shared = f"file://{tmp_path}/shared"
    with Cache.open(tmp_path / "c", layers=[root], shared=shared) as cache:
        assert reason(cache, 0) is MissReason.ABSENT
        assert listed(cache) == {}
        (tmp_path / "aside").rename(entries)
        assert read_plan(cache, 0) == plan_files(0)
    with Cache.open(tmp_path / "c", layers=[root], strict=True) as cache:
        assert read_plan(cache, 1) == plan_files(1)


def test_a_note_that_can_not_be_read_for_a_moment_is_read_later(
    open_cache: OpenCache, root: Path, tmp_path: Path
) -> None:
    open_cache()
    (note,) = [each for each in (tmp_path / "cache/layers").iterdir() if each.name != "lock"]
    note.rename(tmp_path / "aside")
    note.mkdir()  # reading it is an error, as it is without a descriptor left
    cache = open_cache(strict=False)
    assert reason(cache, 0) is MissReason.INVALIDATED
    note.rmdir()
    (tmp_path / "aside").rename(note)
    assert read_plan(cache, 0) == plan_files(0)


def test_looking_around_shows_layers(open_cache: OpenCache, root: Path) -> None:
    cache = open_cache()
    assert {n: each.layer for n, each in listed(cache).items()} == dict.fromkeys(range(3), root)
    keep(cache, plan_key(5), {})
    assert set(listed(cache)) == {0, 1, 2, 5}
    (nearest,) = cache.nearest(plan_key(0, extra=1))
    assert nearest.entry.key == plan_key(0)
    assert list(cache.entries("other/1")) == []
    found = cache.stored_files(plan_key(1))
    assert found is not None
    assert root in found[1].parents
    assert cache.stored_files(plan_key(8)) is None


@pytest.mark.parametrize("with_shared", [False, True])
def test_what_a_bundle_says_of_this_host_is_not_believed(
    tmp_path: Path, root: Path, with_shared: bool
) -> None:
    """Whoever signed it can't have seen a plan pass its tests here."""
    key = Key("canary/1", {"plan": plan_key(0).digest})
    with Cache.open(tmp_path / "evil", strict=True) as evil:
        evil.get_or_compute(key, lambda: "passed", TEXT)
        bundles.create(evil, tmp_path / "values.trivet", evil.entries("canary/1"))
    bundles.install(tmp_path / "values.trivet", root, allow_unsigned=True)
    shared = f"file://{tmp_path}/shared" if with_shared else None
    with Cache.open(tmp_path / "c", layers=[root], shared=shared, strict=True) as cache:
        assert isinstance(cache.host_only.get(key, TEXT), Miss)
        assert read_plan(cache, 0) == plan_files(0)
        assert cache.host_only.get_or_compute(key, lambda: "found out here", TEXT) != "passed"


def test_what_another_host_invalidates_hides_the_layers_entry(tmp_path: Path, root: Path) -> None:
    shared, clock = f"file://{tmp_path}/shared", FakeClock()
    with (
        Cache.open(tmp_path / "c", layers=[root], shared=shared, clock=clock) as cache,
        Cache.open(tmp_path / "other", shared=shared) as other,
    ):
        assert read_plan(cache, 0) == plan_files(0)
        assert hit(cache, 1).descriptor.shared.keys() == {"graph=1", "release=r1"}
        other.invalidate("graph=0")
        clock.advance(10)
        assert cache.get_files(plan_key(0)) == Miss(MissReason.INVALIDATED, "by another host")
        assert listed(cache)[0].invalid is MissReason.INVALIDATED
        assert read_plan(cache, 1) == plan_files(1)
