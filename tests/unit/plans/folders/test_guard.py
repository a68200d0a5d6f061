"""A folder that is kept, and when others are told of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.plans.folders.test_dependencies import TOY

from trivet.cache import Cache, Hit
from trivet.keys import Key
from trivet.plans.folders.dependencies import Basis
from trivet.plans.folders.guard import KeptFolder, Restored
from trivet.plans.folders.interpreter import Interpreter
from trivet.plans.folders.snapshot import StillChanging

BASE, LEARNT = (Key("folder/1", {"framework": "toy", "with": each}) for each in ("", "ops.so"))
PYTHON = Interpreter(executable="", version="", tag="", path=[], prefix="", base="")
BASIS = Basis(base=BASE, python=PYTHON, environment={}, names=[])


def opened(cache: Cache, path: Path, key: Key = BASE) -> KeptFolder:
    return KeptFolder(cache, TOY, BASIS, key, path, command=(b"serve",), wait=0.0)


def test_it_is_there_before_others_are_told_where_to_look(tmp_path: Path) -> None:
    """Who came in between found nothing where it was told to look, and compiled it again."""
    with Cache.open(tmp_path / "cache") as cache:
        folder = opened(cache, tmp_path / "one")
        (folder.path / "compiled").write_text("code")
        seen = []

        def tell() -> Key:
            seen.append(isinstance(cache.get_files(LEARNT), Hit))
            return LEARNT

        assert folder.capture(lambda: LEARNT, tell)
        assert seen == [True]
        folder.release()
        assert opened(cache, tmp_path / "two", LEARNT).restored is Restored.HIT


def test_it_is_kept_again_where_others_have_learnt_more_meanwhile(tmp_path: Path) -> None:
    more = LEARNT.replace(also="more.so")
    keys = iter([LEARNT, LEARNT, more, more])
    with Cache.open(tmp_path / "cache") as cache:
        folder = opened(cache, tmp_path / "one")
        (folder.path / "compiled").write_text("code")
        assert folder.capture(lambda: next(keys), lambda: more)
        assert folder.key == more
        assert opened(cache, tmp_path / "two", more).restored is Restored.HIT


def test_what_never_settles_is_not_kept(tmp_path: Path) -> None:
    with Cache.open(tmp_path / "cache") as cache:
        folder = opened(cache, tmp_path / "one")
        (folder.path / "compiled").write_text("code")
        with pytest.raises(StillChanging):
            folder.capture(lambda: LEARNT, lambda: BASE)
