"""A guard inside the program, with a framework that keeps what it compiles in a variable's folder.

What Inductor makes of it is in tests/torch.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.toys import LIBRARIES

from trivet.cache import Cache
from trivet.errors import BackendError
from trivet.flight import FileLock, FileLocks
from trivet.keys import Key
from trivet.plans.folders import declared, guarded, inside
from trivet.plans.folders.growing import PATIENCE
from trivet.plans.folders.runfolder import VARIABLE
from trivet.testing import FakeClock

TOY = msgspec.structs.replace(
    declared("TOY_CACHE"), name="toy", read_by="toy_framework", settings={"TOY_KEEP": "all"}
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    monkeypatch.setattr(inside, "KNOWN", (TOY,))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("TOY_CACHE", raising=False)
    with Cache.open(tmp_path / "cache") as cache:
        yield cache


def compile_toy(word: str) -> Path:
    """What the framework does: write into its folder, and lead its own children there."""
    folder = Path(os.environ["TOY_CACHE"])
    os.environ["TOY_CHILD"] = str(folder / "child")
    (folder / word).write_text(word)
    return folder


def test_what_was_compiled_is_there_in_the_next_guard_and_the_environment_as_before(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_CACHE", "/mine")
    with guarded(cache, "toy") as run:
        first = compile_toy("a")
        assert [each.restored for each in run.effects()] == ["empty"]
        assert os.environ["TOY_KEEP"] == "all"
    assert (os.environ["TOY_CACHE"], "TOY_CHILD" in os.environ) == ("/mine", False)
    assert "TOY_KEEP" not in os.environ
    assert not first.exists()
    with guarded(cache, "toy") as run:
        again = Path(os.environ["TOY_CACHE"])
        assert (run.effects()[0].restored, (again / "a").read_text()) == ("hit", "a")
        assert again != first


def test_other_salts_see_nothing(cache: Cache) -> None:
    with guarded(cache, "toy", salts={"version": "1"}):
        compile_toy("a")
    with guarded(cache, "toy", salts={"version": "2"}) as run:
        assert run.effects()[0].restored == "empty"


def test_a_guard_inside_a_guard_is_that_guard(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = msgspec.structs.replace(declared("OTHER_CACHE"), name="other", read_by="other_one")
    monkeypatch.setattr(inside, "KNOWN", (TOY, other))
    with guarded(cache, "toy", "other", salts={"version": "1", "more": "2"}) as outer:
        with guarded(cache, "toy", salts={"version": "1"}) as inner:
            assert inner is outer
            compile_toy("a")
        added = {each.framework: each.added for each in outer.effects()}
        assert added["toy"] == 1, "also at the end of the inner one"
        compile_toy("b")
    with guarded(cache, "toy", "other", salts={"version": "1", "more": "2"}):
        assert {"a", "b"} <= {each.name for each in Path(os.environ["TOY_CACHE"]).iterdir()}


def test_a_guard_inside_one_that_does_not_guard_that_is_an_error(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = msgspec.structs.replace(declared("OTHER_CACHE"), name="other", read_by="other_one")
    monkeypatch.setattr(inside, "KNOWN", (TOY, other))
    with guarded(cache, "toy", salts={"version": "1"}):
        for name, frameworks, more in (
            ("frameworks", ("toy", "other"), {}),
            ("inputs", ("toy",), {"inputs": [__file__]}),
            ("salts", ("toy",), {"salts": {"version": "2"}}),
        ):
            with pytest.raises(BackendError, match=f"not given its {name}"):
                guarded(cache, *frameworks, **more).__enter__()  # type: ignore[arg-type]
        another = Cache.open(tmp_path / "another")
        with another, pytest.raises(BackendError, match="not given its cache"):
            guarded(another, "toy").__enter__()
        with Cache.open(tmp_path / "cache") as same, guarded(same, "toy"):
            compile_toy("a")
    with guarded(cache, "other") as run:
        assert len(run.effects()) == 1, "the one before is over"


def test_what_python_keeps_for_good_is_given_to_it_once(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is to call at audit events and after a fork."""
    given: list[str] = []

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def count(*functions: Any, **named: Any) -> Any:
            given.extend(each.__module__ for each in (*functions, *named.values()))
            return real(*functions, **named)

        return count

    monkeypatch.setattr(sys, "addaudithook", counting(sys.addaudithook))
    monkeypatch.setattr(os, "register_at_fork", counting(os.register_at_fork))
    for _ in range(10):
        with guarded(cache, "toy"):
            pass
    assert len([each for each in given if each.startswith("trivet_exec_")]) <= 2


def test_others_that_keep_the_same_are_waited_for_a_minute_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another process has all leases, and a shared tier that does not answer it."""
    monkeypatch.setattr(inside, "KNOWN", (TOY,))
    monkeypatch.delenv(VARIABLE, raising=False)
    clock, taken = FakeClock(), set[bytes]()
    acquire, try_lock = Cache.acquire_files, FileLocks.try_lock

    def find_taken(self: Cache, key: Key, **options: Any) -> Any:
        taken.add(key.digest)
        return acquire(self, key, **options)

    def lock(self: FileLocks, digest: bytes) -> FileLock | None:
        return None if digest in taken else try_lock(self, digest)

    with Cache.open(tmp_path / "cache", clock=clock) as cache, guarded(cache, "toy") as run:
        compile_toy("a")
        monkeypatch.setattr(Cache, "acquire_files", find_taken)
        monkeypatch.setattr(FileLocks, "try_lock", lock)
        began = clock.monotonic()
        assert run.capture()
        assert PATIENCE - 1 < clock.monotonic() - began < PATIENCE + 1


def test_what_was_complete_before_an_exception_is_kept(cache: Cache) -> None:
    def fail() -> None:
        with guarded(cache, "toy"):
            compile_toy("a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with guarded(cache, "toy") as run:
        assert run.effects()[0].files == 1


def test_what_changed_since_the_program_began_is_not_believed(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been loaded before the guard was entered, and before it changed."""
    library = tmp_path / "operators.so"
    shutil.copyfile(LIBRARIES["blake3"], library)
    monkeypatch.setattr(inside, "_BEGAN", inside._process_start())
    ctypes.CDLL(str(library))
    with library.open("ab") as file:
        file.write(b"patched")
    with guarded(cache, "toy") as run:
        compile_toy("a")
        assert not run.capture()
        assert "operators.so changed while the program ran" in run.effects()[0].not_kept


def test_a_forked_child_neither_keeps_nor_removes_what_is_its_parents(cache: Cache) -> None:
    context, parent = guarded(cache, "toy"), os.getpid()
    context.__enter__()
    folder = compile_toy("a")
    child = os.fork()
    if child == 0:
        context.__exit__(None, None, None)  # as at the end of a worker that was forked inside
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (os.getpid(), (folder / "a").read_text()) == (parent, "a")
    context.__exit__(None, None, None)
    assert not folder.exists()


def test_after_the_framework_was_imported_it_is_too_late(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "toy_framework", types.ModuleType("toy_framework"))
    with (
        pytest.raises(BackendError, match="toy_framework is imported already"),
        guarded(cache, "toy"),
    ):
        pass
    assert "TOY_CACHE" not in os.environ


def test_a_name_that_nobody_knows_is_refused(cache: Cache) -> None:
    for names in ((), ("toy", "tensorflow")):
        with pytest.raises(BackendError, match="names of frameworks"), guarded(cache, *names):
            pass


def test_under_the_command_nothing_is_guarded_twice(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nobody listens"))
    monkeypatch.setenv("TOY_CACHE", "/the/commands")
    with guarded(cache, "toy") as run:
        assert os.environ["TOY_CACHE"] == "/the/commands"
        assert run.effects() == []


def test_an_input_that_is_not_there_leaves_nothing_behind(cache: Cache, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), guarded(cache, "toy", inputs=[tmp_path / "gone"]):
        pass
    assert list((tmp_path / "cache" / "runs").glob("run-*")) == []
