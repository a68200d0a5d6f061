"""Field cases: processes die while they compile, publish or load, and the next one starts."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.cases import (
    BACKENDS,
    Forked,
    Wrapped,
    answer,
    child,
    close,
    make_backend,
    mlp_answer,
    mlp_input,
    result,
)
from tests.support.onnx_models import mlp, save

from trivet.cache import Cache
from trivet.plans.plans import Plans
from trivet.testing.crash import die, kill_at_step

PROTO = mlp(seed=6)
EXPECTED = mlp_answer(PROTO, mlp_input())


class Fatal(Wrapped):
    """A backend that ends the process while it loads a plan, or when the plan is first run."""

    def __init__(self, backend: str, moment: str, how: str) -> None:
        super().__init__(make_backend(backend))
        self._moment = moment
        self._how = how

    def load(self, *arguments: Any) -> Any:
        loaded = self._backend.load(*arguments)
        if self._moment == "load":
            end(self._how)
        return Fuse(loaded, self._how)


class Fuse:
    """An executable that ends the process when it runs."""

    def __init__(self, executable: Any, how: str) -> None:
        self._executable = executable
        self._how = how

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)

    def run(self, _: Any) -> Any:
        end(self._how)


def end(how: str) -> None:
    """Die, as a broken plan makes a process die, or wait to be killed."""
    if how == "pause":
        signal.pause()
    elif how == "SIGSEGV":
        ctypes.string_at(0)
    else:
        os.kill(os.getpid(), signal.Signals[how])


def load_fatally(folder: str, model: str, backend: str, moment: str, how: str) -> None:
    """Load the plan in a way that ends this process."""
    with Cache.open(folder, strict=True) as cache:
        fatal: Any = Fatal(backend, moment, how)
        Plans(cache, fatal, canary="always").load(model)


def deaths(folder: str, model: str, backend: str) -> list[dict[str, Any]]:
    """In a child: for each way to die: how it died, what the next process got, and the next."""
    make_backend(backend).warm_import()
    found = []
    for moment, how in (("load", "SIGSEGV"), ("load", "SIGKILL"), ("run", "SIGILL")):
        dead = Forked(
            lambda moment=moment, how=how: load_fatally(folder, model, backend, moment, how)
        )
        found.append({"how": how, **dead.result()})
        for _ in range(2):
            found.append(Forked(lambda: answer(folder, model, backend)).result())
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plan_that_kills_its_process_is_set_aside_at_the_next_start(
    backend: str, tmp_path: Path
) -> None:
    model = save(PROTO, tmp_path / "m.onnx")
    answer(tmp_path / "c", model, backend)
    found = result(child(f"{__name__}:deaths", str(tmp_path / "c"), str(model), backend, {}))
    assert len(found) == 9
    for dead, first, second in zip(found[::3], found[1::3], found[2::3], strict=True):
        assert dead["exit"] == -signal.Signals[dead["how"]], dead
        assert (first["source"], first["reason"]) == ("compiled", "crashed"), first
        assert second["source"] == "cache", second
        assert close(first, EXPECTED)
        assert close(second, EXPECTED)
    reports = [each.read_text() for each in (tmp_path / "c/quarantine").glob("*/report.json")]
    assert [json.loads(each)["reason"] for each in reports] == [
        "a process died while loading it"
    ] * 3


def held_load(folder: str, model: str) -> list[dict[str, Any]]:
    """In a child: what others get while a process loads, and after it was killed."""
    make_backend("onnxruntime").warm_import()

    def ask() -> Any:
        return Forked(lambda: answer(folder, model)).result()

    slow = Forked(lambda: load_fatally(folder, model, "onnxruntime", "load", "pause"))
    journal = Path(folder) / "journal"
    deadline = time.monotonic() + 30
    while not any(journal.glob("[!.]*")) and time.monotonic() < deadline:
        time.sleep(0.002)
    during = ask()
    os.kill(slow.pid, signal.SIGKILL)
    return [slow.result(), during, ask(), ask()]


def test_a_slow_load_is_no_crash_until_its_process_is_dead(tmp_path: Path) -> None:
    model = save(PROTO, tmp_path / "m.onnx")
    answer(tmp_path / "c", model)
    dead, during, after, last = result(
        child(f"{__name__}:held_load", str(tmp_path / "c"), str(model), {})
    )
    assert dead == {"exit": -signal.SIGKILL}
    assert during["source"] == "cache"
    assert (after["source"], after["reason"]) == ("compiled", "crashed")
    assert last["source"] == "cache"


# -- at every step, at any moment ------------------------------------------------------------------


def steps(folder: str, model: str, populated: bool) -> list[dict[str, Any]]:
    """In a child: kill a start before each of its steps; what the next start got each time."""
    make_backend("onnxruntime").warm_import()
    found = []
    for n in itertools.count(1, 1 if populated else 2):
        where = f"{folder}/{n}"
        if populated:
            Forked(lambda where=where: answer(where, model)).result()

        def doomed(n: int = n, where: str = where) -> Any:
            kill_at_step(n)
            return answer(where, model)

        ended = Forked(doomed).result()
        if "source" in ended:
            return found
        found.append({**ended, **Forked(lambda where=where: answer(where, model)).result()})
    raise AssertionError("unreachable")


@pytest.mark.parametrize("populated", [False, True], ids=["compiling", "loading"])
def test_killed_before_any_step_of_a_start_the_next_start_is_right(
    populated: bool, tmp_path: Path
) -> None:
    model = save(PROTO, tmp_path / "m.onnx")
    found = result(child(f"{__name__}:steps", str(tmp_path), str(model), populated, {}), 240)
    assert len(found) > (5 if populated else 15), "else the steps are not counted"
    for number, each in enumerate(found):
        assert each["exit"] == -signal.SIGKILL, (number, each)
        assert close(each, EXPECTED), (number, each)
    assert "cache" in {each["source"] for each in found}


def killings(folder: str, model: str, backend: str, times: int) -> list[dict[str, Any]]:
    """In a child: start, kill after a random time, start again; what the second starts got."""
    make_backend(backend).warm_import()
    chance = random.Random(7)

    def start(forgetting: bool) -> Any:
        if forgetting:
            with Cache.open(folder) as cache:
                for each in list(cache.entries("plan/1")):
                    cache.forget(each.key)
        return answer(folder, model, backend)

    began = time.monotonic()
    Forked(lambda: start(True)).result()
    whole = time.monotonic() - began
    found = []
    for number in range(times):
        victim = Forked(lambda number=number: start(number % 2 == 0))
        time.sleep(chance.random() * whole)
        os.kill(victim.pid, signal.SIGKILL)
        ended = victim.result()
        found.append({"killed": "exit" in ended, **Forked(lambda: start(False)).result()})
    return found


@pytest.mark.parametrize(("backend", "times"), [("onnxruntime", 35), ("openvino", 15)])
def test_killed_at_random_moments_the_next_start_is_right(
    backend: str, times: int, tmp_path: Path
) -> None:
    model = save(PROTO, tmp_path / "m.onnx")
    found = result(
        child(f"{__name__}:killings", str(tmp_path / "c"), str(model), backend, times, {}), 240
    )
    assert len(found) == times
    assert sum(each["killed"] for each in found) > times // 4, "else nothing was killed"
    for number, each in enumerate(found):
        assert "y" in each, (number, each)
        assert close(each, EXPECTED), (number, each)


def killed_compiling(folder: str, model: str) -> Any:
    """In a child: die inside a compile."""
    backend: Any = make_backend("onnxruntime")
    backend._save = lambda *_: die()
    with Cache.open(folder) as cache:
        Plans(cache, backend).load(model)


def test_a_killed_process_leaves_nothing_that_grows(tmp_path: Path) -> None:
    """Staging folders, locks and marks of the dead are removed by those who come after."""
    model, folder = save(PROTO, tmp_path / "m.onnx"), tmp_path / "c"
    for _ in range(3):
        dead = child(f"{__name__}:killed_compiling", str(folder), str(model), {})
        dead.communicate()
        assert dead.returncode == -signal.SIGKILL
    assert list((folder / "staging").iterdir()) != [], "else nothing was begun"
    answer(folder, model)
    for name in ("staging", "locks", "journal", "trash"):
        assert list((folder / name).iterdir()) == [], name
