"""`kill -9` between any two steps of making and installing a bundle: old, new or nothing."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.bundles import files_below, fill, make_bundle, plan_files, plan_key, read_plan

from trivet.cache import Cache, Hit, Miss
from trivet.events import MissReason
from trivet.plans import bundles
from trivet.stores.layers import Layer
from trivet.testing.crash import kill_at_step, run_killed

# So that a change of the code can't turn the tests into ones that kill nobody.
LEAST_KILLS = {"create": 6, "first": 25, "second": 20, "replace": 25, "mend": 25, "see": 5}


def over_every_step(
    what: str,
    before: Callable[[], None],
    work: Callable[[Callable[[], object]], object],
    after: Callable[[], None],
) -> None:
    """Run ``work`` in a child, killed at its first step, its second, and so on to its end.

    Steps count from when it calls what it is given.
    """
    for n in itertools.count(1):
        before()
        killed = run_killed(lambda: work(lambda: kill_at_step(n)))  # noqa: B023
        after()
        if not killed:
            assert n > LEAST_KILLS[what]
            return


def test_a_killed_writer_leaves_the_old_bundle_or_the_new_one(tmp_path: Path) -> None:
    with Cache.open(tmp_path / "host", strict=True) as cache:
        fill(cache, range(2))
    out, old = tmp_path / "out", make_bundle(tmp_path, range(1), release="old")
    out.mkdir()
    was, new = old.read_bytes(), set()

    def create(arm: Callable[[], object]) -> None:
        with Cache.open(tmp_path / "host", strict=True) as cache:
            arm()
            bundles.create(cache, out / "b")

    def check() -> None:
        assert files_below(out) <= {"b", ".b.part"}
        if (out / "b").read_bytes() != was:
            new.add(bundles.verify(out / "b").id)

    over_every_step("create", lambda: (out / "b").write_bytes(was) and None, create, check)
    assert len(new) == 1
    assert files_below(out) == {"b"}, "what the dead left was written over"


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return make_bundle(tmp_path, range(1), release="a")


@pytest.fixture
def b(tmp_path: Path) -> Path:
    return make_bundle(tmp_path, range(1, 2), release="b")


class Site:
    """A layer that is put back to what it was before each kill."""

    def __init__(self, folder: Path, *installed: Path) -> None:
        self.layer, self._kept = folder / "layer", folder / "kept"
        for each in installed:
            bundles.install(each, self._kept, allow_unsigned=True)

    def reset(self) -> None:
        shutil.rmtree(self.layer, ignore_errors=True)
        if self._kept.exists():
            shutil.copytree(self._kept, self.layer)

    def visible(self) -> tuple[str, ...]:
        """The bundles that can be seen; all that can be seen is sound."""
        if not (self.layer / "layer.json").exists():
            return ()
        assert all(each.problem is None for each in bundles.verify_layer(self.layer))
        return Layer(self.layer).bundles()

    def install(
        self, bundle: Path, arm: Callable[[], object] = int, *, replace: bool = False
    ) -> None:
        arm()
        bundles.install(bundle, self.layer, allow_unsigned=True, replace=replace)

    def check_tidy(self) -> None:
        assert os.listdir(self.layer / "staging") == []
        assert set(os.listdir(self.layer / "bundles")) == set(Layer(self.layer).bundles())


def test_a_killed_first_install_is_seen_whole_or_not_at_all(tmp_path: Path, a: Path) -> None:
    site, seen = Site(tmp_path), set()

    def check() -> None:
        seen.add(len(site.visible()))
        site.install(a)
        assert len(site.visible()) == 1
        site.check_tidy()

    over_every_step("first", site.reset, lambda arm: site.install(a, arm), check)
    assert seen == {0, 1}


@pytest.mark.parametrize("replace", [False, True])
def test_a_killed_second_install_leaves_what_was_there(
    tmp_path: Path, a: Path, b: Path, replace: bool
) -> None:
    site = Site(tmp_path, a)
    first, second = bundles.verify(a).id, bundles.verify(b).id
    after = (second,) if replace else (second, first)
    seen = set()

    def check() -> None:
        seen.add(site.visible())
        site.install(b, replace=replace)
        assert site.visible() == after
        site.check_tidy()

    what = "replace" if replace else "second"
    over_every_step(what, site.reset, lambda arm: site.install(b, arm, replace=replace), check)
    assert seen == {(first,), after}


def test_a_killed_repair_serves_nothing_wrong(tmp_path: Path, a: Path) -> None:
    site = Site(tmp_path, a)
    seen = set()
    (victim,) = (tmp_path / "kept").glob(f"bundles/*/entries/{plan_key(0).digest.hex()}")
    victim.write_bytes(victim.read_bytes()[:-1] + b"x")

    def check() -> None:
        with Cache.open(tmp_path / "fresh", layers=[site.layer], strict=True) as cache:
            if isinstance(cache.get_files(plan_key(0)), Hit):
                assert read_plan(cache, 0) == plan_files(0)
                seen.add("sound")
            else:
                seen.add("nothing")
        shutil.rmtree(tmp_path / "fresh")
        site.install(a)
        assert len(site.visible()) == 1
        site.check_tidy()

    over_every_step("mend", site.reset, lambda arm: site.install(a, arm), check)
    assert seen == {"sound", "nothing"}


def test_who_dies_at_first_sight_of_a_bundle_takes_nothing_back(tmp_path: Path, a: Path) -> None:
    bundles.install(a, tmp_path / "layer", allow_unsigned=True)
    layers = [tmp_path / "layer"]

    def fresh() -> None:
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        Cache.open(tmp_path / "cache", strict=True).close()

    def see(arm: Callable[[], object]) -> None:
        Cache.open(tmp_path / "cache", strict=True)  # the folder's own steps are not meant
        arm()
        Cache.open(tmp_path / "cache", layers=layers, strict=True)

    def check() -> None:
        with Cache.open(tmp_path / "cache", layers=layers, strict=True) as cache:
            assert read_plan(cache, 0) == plan_files(0)
            cache.invalidate("graph=0")
        with Cache.open(tmp_path / "cache", layers=layers, strict=True) as cache:
            assert cache.get_files(plan_key(0)) == Miss(MissReason.INVALIDATED)

    over_every_step("see", fresh, see, check)
