"""Artifacts: files that are verified before anybody gets their path."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from tests.support.engine import key

from trivet.cache import Artifact, ArtifactLease, Cache, Failed, Hit, Miss
from trivet.codecs import Bytes
from trivet.errors import CorruptEntry, LeaseLost
from trivet.events import MissReason
from trivet.testing import FakeClock


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache.open(tmp_path / "c", strict=True)


def make(cache: Cache, n: object = 1, **options: object) -> Artifact:
    lease = cache.acquire_files(key(n), tags=("t",))
    assert isinstance(lease, ArtifactLease)
    (lease.staging / "sub").mkdir()
    (lease.staging / "sub" / "a.bin").write_bytes(b"a" * 5000)
    (lease.staging / "empty").write_bytes(b"")
    return lease.commit(**options)  # type: ignore[arg-type]


def found(cache: Cache, n: object = 1) -> Artifact:
    hit = cache.get_files(key(n))
    assert isinstance(hit, Hit)
    return hit.value


def test_files_come_back_in_place_with_their_facts(cache: Cache) -> None:
    made = make(cache, cost=3.0, detail={"isa": ["avx2"]})
    again = found(cache)
    folder = again.verify()
    assert (folder / "sub" / "a.bin").read_bytes() == b"a" * 5000
    assert [each.name for each in again.manifest.files] == ["empty", "sub/a.bin"]
    assert again.descriptor.cost == 3.0
    assert again.descriptor.detail == {"isa": ["avx2"]}
    assert folder == made.verify(), "the maker uses the published files too"


@pytest.mark.parametrize("damage", ["flip", "truncate", "grow", "delete", "link"])
def test_no_path_is_given_out_for_files_that_are_not_what_was_written(
    cache: Cache, damage: str
) -> None:
    make(cache)
    artifact = found(cache)
    path = artifact._folder / "sub" / "a.bin"
    content = path.read_bytes()
    os.chmod(path, 0o600)
    match damage:
        case "flip":
            path.write_bytes(content[:99] + b"b" + content[100:])
        case "truncate":
            path.write_bytes(content[:99])
        case "grow":
            path.write_bytes(content + b"a")
        case "delete":
            path.unlink()
        case "link":
            other = cache.store.root / "other"  # type: ignore[union-attr]
            path.rename(other)
            path.symlink_to(other)
    with pytest.raises(CorruptEntry, match=r"a\.bin"):
        artifact.verify()
    cache.quarantine(key(1), "damaged")
    assert isinstance(cache.get_files(key(1)), Miss)
    assert make(cache).verify()


def test_a_failed_making_leaves_nothing_behind(cache: Cache) -> None:
    lease = cache.acquire_files(key(1))
    assert isinstance(lease, ArtifactLease)
    staging = lease.staging
    (staging / "half").write_bytes(b"x")
    lease.abandon()
    assert not staging.exists()
    assert isinstance(cache.get_files(key(1)), Miss)
    with pytest.raises(LeaseLost):
        lease.commit()


def test_a_recorded_failure_answers_for_files(cache: Cache) -> None:
    lease = cache.acquire_files(key(1))
    assert isinstance(lease, ArtifactLease)
    lease.refuse(ValueError("no"), lifetime=60.0)
    assert isinstance(cache.get_files(key(1)), Failed)


def test_another_key_may_answer_as_well(cache: Cache) -> None:
    make(cache, "portable")
    assert isinstance(cache.get_files(key("bound")), Miss)
    hit = cache.acquire_files(key("bound"), also=(key("portable"),))
    assert isinstance(hit, Hit)
    assert hit.value.key == key("portable")


def test_published_under_the_other_key_it_answers_those_who_waited_for_the_first(
    cache: Cache,
) -> None:
    lease = cache.acquire_files(key("bound"), also=(key("portable"),))
    assert isinstance(lease, ArtifactLease)
    (lease.staging / "x").write_bytes(b"x")
    lease.commit(key=key("portable"))
    assert isinstance(cache.get_files(key("bound")), Miss)
    assert isinstance(cache.get_files(key("bound"), also=(key("portable"),)), Hit)


@pytest.mark.parametrize("why", [None, "not wanted", ""])
def test_files_that_are_not_kept_live_as_long_as_the_artifact(
    tmp_path: Path, why: str | None
) -> None:
    cache = Cache() if why is None else Cache.open(tmp_path / "c")
    lease = cache.acquire_files(key(1))
    assert isinstance(lease, ArtifactLease)
    (lease.staging / "x").write_bytes(b"x")
    artifact = lease.commit() if why is None else lease.drop(why)
    path = artifact.verify() / "x"
    assert path.read_bytes() == b"x"
    assert isinstance(cache.get_files(key(1)), Miss)
    del artifact, lease
    gc.collect()
    assert not path.exists()


def test_invalidated_while_being_made_is_handed_out_and_not_kept(cache: Cache) -> None:
    lease = cache.acquire_files(key(1), tags=("t",))
    assert isinstance(lease, ArtifactLease)
    (lease.staging / "x").write_bytes(b"x")
    cache.invalidate("t")
    artifact = lease.commit()
    assert (artifact.verify() / "x").exists()
    assert isinstance(cache.get_files(key(1)), Miss)


def test_values_and_files_under_one_key_are_not_mistaken_for_each_other(cache: Cache) -> None:
    make(cache)
    value = cache.get(key(1), Bytes())
    assert isinstance(value, Miss)
    assert value.reason is MissReason.INCOMPATIBLE
    cache.get_or_compute(key(2), lambda: b"x", Bytes())
    files = cache.get_files(key(2))
    assert isinstance(files, Miss)
    assert files.reason is MissReason.INCOMPATIBLE


def test_a_replaced_artifact_stays_readable_for_those_who_have_it_open(cache: Cache) -> None:
    make(cache)
    with open(found(cache).verify() / "sub" / "a.bin", "rb") as mapped:
        cache.forget(key(1))
        make(cache)
        assert mapped.read() == b"a" * 5000


def test_who_waits_is_told_before_and_only_then(tmp_path: Path) -> None:
    told: list[str] = []
    clock = FakeClock()
    with (
        Cache.open(tmp_path / "c", strict=True) as other,
        Cache.open(tmp_path / "c", strict=True, clock=clock) as cache,
    ):

        def ask(name: str) -> object:
            return cache.acquire_files(key(1), wait=3.0, waiting=lambda: told.append(name))

        held = other.acquire_files(key(1))
        assert isinstance(held, ArtifactLease)
        late = ask("waits")
        assert isinstance(late, ArtifactLease)
        assert (told, late.reason) == (["waits"], MissReason.WAIT_TIMEOUT)
        late.abandon()
        held.abandon()
        mine = ask("gets the lease")
        assert isinstance(mine, ArtifactLease)
        mine.commit()
        assert isinstance(ask("hits"), Hit)
        assert told == ["waits"]


@pytest.mark.parametrize("busy", [True, False])
def test_a_wait_that_was_interrupted_is_over_though_its_traceback_is_kept(
    tmp_path: Path, busy: bool
) -> None:
    class Impatient(FakeClock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    def interrupted() -> None:
        if busy:
            raise KeyboardInterrupt

    with (
        Cache.open(tmp_path / "c", strict=True) as other,
        Cache.open(tmp_path / "c", strict=True, clock=Impatient()) as cache,
    ):
        held = other.acquire_files(key(1))
        assert isinstance(held, ArtifactLease)
        with pytest.raises(KeyboardInterrupt) as kept:
            cache.acquire_files(key(1), waiting=interrupted)
        held.abandon()
        mine = cache.acquire_files(key(1))
        assert isinstance(mine, ArtifactLease)
        assert mine.reason is MissReason.ABSENT
        mine.abandon()
        del kept
