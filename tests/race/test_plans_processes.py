"""Field cases: many processes start at once, and processes serve while others change the cache."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
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
from tests.support.onnx_models import mlp, model, save, tensor

from trivet.cache import Cache
from trivet.events import Event, EventKind
from trivet.plans.activity import Activity
from trivet.plans.plans import Plans
from trivet.testing import Recorder

PROTO = mlp(seed=3)
X = mlp_input()
STORM = 8
RUNS = 200


class Held(Wrapped):
    """A backend that says when it compiles, and then waits to be killed."""

    def __init__(self, name: str, report: int) -> None:
        super().__init__(make_backend(name))
        self._report = report

    def compile(self, *_: Any) -> Any:
        os.write(self._report, b"c")
        signal.pause()


def storm(folder: str, path: str, backend: str, kill_leader: bool) -> list[dict[str, Any]]:
    """In a child that has the framework imported: fork eight, let them start at the same moment.

    With ``kill_leader``, one of them is inside its compile and the others wait for it when it is
    killed; the answers are those of the others.
    """
    make_backend(backend).warm_import()
    gate, reports = os.pipe(), os.pipe()

    def work(number: int) -> dict[str, Any]:
        leads = kill_leader and number == 0
        os.read(gate[0], 1)

        def sink(event: Event) -> None:
            if event.kind is EventKind.WAITED and event.space == "plan/1":
                os.write(reports[1], b"w")

        with Cache.open(folder, strict=True, sink=sink) as cache:
            held: Any = Held(backend, reports[1]) if leads else make_backend(backend)
            plan = Plans(cache, held).load(path)
            return {"source": str(plan.source), "y": plan.run({"x": X})["y"].ravel().tolist()}

    first = Forked(lambda: work(0))
    if kill_leader:
        os.write(gate[1], b"g")
        assert os.read(reports[0], 1) == b"c"
    others = [Forked(lambda n=n: work(n)) for n in range(1, STORM)]  # type: ignore[misc]
    os.write(gate[1], b"g" * STORM)
    if not kill_leader:
        return [each.result() for each in (first, *others)]
    waiting = 0
    while waiting < STORM - 1:
        waiting += len(os.read(reports[0], STORM))
    os.kill(first.pid, signal.SIGKILL)
    assert first.result() == {"exit": -signal.SIGKILL}
    return [each.result() for each in others]


@pytest.mark.parametrize("backend", BACKENDS)
def test_eight_processes_on_an_empty_cache_compile_once(backend: str, tmp_path: Path) -> None:
    path = save(PROTO, tmp_path / "m.onnx")
    found = result(child(f"{__name__}:storm", str(tmp_path / "c"), str(path), backend, False, {}))
    assert sorted(each["source"] for each in found) == ["cache"] * (STORM - 1) + ["compiled"]
    assert all(close(each, mlp_answer(PROTO, X)) for each in found)
    logged = [str(use.source) for use in Activity(tmp_path / "c")]
    assert sorted(logged) == ["cache"] * (STORM - 1) + ["compiled"]
    assert not list((tmp_path / "c/quarantine").glob("*")), "nobody is taken for crashed"


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_compiling_process_is_killed_and_one_of_the_waiters_compiles(
    backend: str, tmp_path: Path
) -> None:
    path = save(PROTO, tmp_path / "m.onnx")
    found = result(child(f"{__name__}:storm", str(tmp_path / "c"), str(path), backend, True, {}))
    assert sorted(each["source"] for each in found) == ["cache"] * (STORM - 2) + ["compiled"]
    assert all(close(each, mlp_answer(PROTO, X)) for each in found)


def test_loads_at_the_same_time_are_not_taken_for_crashes(tmp_path: Path) -> None:
    """Marks of loads come and go while others look for marks of the dead."""
    path = save(PROTO, tmp_path / "m.onnx")
    answer(tmp_path / "c", path)
    assert (
        result(child(f"{__name__}:load_often", str(tmp_path / "c"), str(path), {}))
        == [{"cache": 60}] * 4
    )
    assert not list((tmp_path / "c/quarantine").glob("*"))


def load_often(folder: str, path: str) -> list[dict[str, int]]:
    """In a child: how four processes got a plan 60 times each, by source."""
    make_backend("onnxruntime").warm_import()

    def work() -> dict[str, int]:
        counts: dict[str, int] = {}
        with Cache.open(folder, strict=True) as cache:
            plans = Plans(cache, make_backend("onnxruntime"), canary="never")
            for _ in range(60):
                source = str(plans.load(path).source)
                counts[source] = counts.get(source, 0) + 1
        return counts

    return [each.result() for each in [Forked(work) for _ in range(4)]]


class Changing(Wrapped):
    """A backend during whose import (while the files are verified) others change the cache."""

    def __init__(self, name: str, what: Callable[[], object]) -> None:
        super().__init__(make_backend(name))
        self._what: list[Callable[[], object]] = [what]

    def warm_import(self) -> None:
        if self._what:
            self._what.pop()()
        self._backend.warm_import()


@pytest.mark.parametrize("again", [True, False], ids=["replaced", "removed"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plan_replaced_while_it_is_verified_is_not_blamed_on_the_new_one(
    backend: str, again: bool, tmp_path: Path
) -> None:
    path, folder = save(PROTO, tmp_path / "m.onnx"), tmp_path / "c"
    answer(folder, path, backend)

    def others() -> None:
        with Cache.open(folder, strict=True) as cache:
            (entry,) = cache.entries("plan/1")
            cache.forget(entry.key)
        if again:
            answer(folder, path, backend)

    recorder = Recorder()
    with Cache.open(folder, strict=True, sink=recorder) as cache:
        changing: Any = Changing(backend, others)
        plan = Plans(cache, changing).load(path)
        assert close({"y": plan.run({"x": X})["y"].ravel()}, mlp_answer(PROTO, X))
    assert recorder.count(EventKind.QUARANTINED) == 0
    assert (str(plan.source), plan.loaded.reason) == (
        ("cache", "") if again else ("compiled", "absent")
    )
    assert answer(folder, path, backend)["source"] == "cache"


# -- while it serves -----------------------------------------------------------------------------


def table(seed: int = 0) -> onnx.ModelProto:
    """``y = x * w + b`` element by element: no runtime packs such weights, they stay mapped."""
    random = np.random.default_rng(seed)
    weights = {name: random.standard_normal((64, 64)).astype(np.float32) for name in ("w", "b")}
    nodes = [
        onnx.helper.make_node("Mul", ["x", "w"], ["h"]),
        onnx.helper.make_node("Add", ["h", "b"], ["y"]),
    ]
    return model(nodes, [tensor("x", [64, 64])], [tensor("y", [64, 64])], weights)


def serve(folder: str, path: str, backend: str) -> dict[str, Any]:
    """In a child: load, then run as often as asked; the last line is a summary."""
    x = {"x": mlp_input(64, 64)}
    with Cache.open(folder) as cache:
        plan = Plans(cache, make_backend(backend)).load(path)
        expected = plan.run(x)["y"]
        print(json.dumps({"source": str(plan.source), "y": expected.ravel().tolist()}), flush=True)
        runs = 0
        while (order := input()) != "stop":
            for _ in range(int(order)):
                assert np.array_equal(plan.run(x)["y"], expected)
                runs += 1
            print("fine", flush=True)
        return {"runs": runs}


def changes(folder: Path, path: Path, backend: str) -> Iterator[str]:
    """Everything that may happen to a plan which somebody has mapped; a name after each."""
    with Cache.open(folder, strict=True) as cache:
        plans = Plans(cache, make_backend(backend), release="r1")
        (entry,) = cache.entries("plan/1")
        cache.quarantine(entry.key, "a test says so")
        yield "quarantined"
        assert str(plans.load(path).source) == "compiled"
        yield "replaced"
        cache.invalidate("release=r1")
        assert str(plans.load(path).source) == "compiled"
        yield "dropped and made again"
        assert cache.forget(entry.key)
        yield "forgotten"
        plans.load(path)
        store: Any = cache.store
        assert store.evict(entry.key.digest)
        store.gc()
        yield "evicted and collected"
        plans.load(path)
        store.clear()
        yield "cleared"
        plans.load(path)
    shutil.rmtree(folder)
    yield "wiped"
    answer(folder, path, backend)
    yield "wiped and made again"


def say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_serving_process_survives_whatever_others_do_to_the_cache(
    backend: str, tmp_path: Path
) -> None:
    """Mapped files are only ever unlinked: no SIGBUS, no other numbers."""
    path, folder = save(table(), tmp_path / "m.onnx"), tmp_path / "c"
    expected = np.array(answer(folder, path, backend)["y"])
    with ExitStack() as stack:
        server = stack.enter_context(
            child(f"{__name__}:serve", str(folder), str(path), backend, {})
        )
        stack.callback(server.kill)
        first = json.loads(hear(server))
        assert (first["source"], close(first, expected)) == ("cache", True)
        assert mapped(server.pid, folder), "else this would prove nothing"
        done = 0
        for change in changes(folder, path, backend):
            say(server, str(RUNS))
            assert hear(server) == "fine", change
            done += 1
        say(server, "stop")
        assert result(server) == {"runs": done * RUNS}


def mapped(pid: int, folder: Path) -> list[str]:
    """The files of plans below ``folder`` that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if f"{folder}/artifacts" in line]
