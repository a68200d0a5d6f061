"""Eight processes at once on an empty cache: who reads the model and the framework's libraries."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.cases import BACKENDS, Forked, child, make_backend, result
from tests.support.onnx_models import mlp, save

from trivet.cache import Cache
from trivet.events import Event, EventKind
from trivet.plans import installed
from trivet.plans.graph import GraphMemo
from trivet.plans.graph import memo as graph_memo
from trivet.plans.memo import CacheMemo
from trivet.testing import FakeClock

STORM = 8


class Counted:
    """Appends to a log whenever ``function`` is called, and then does ``more``."""

    def __init__(self, function: Callable[[Any], Any], log: Path, more: Callable[[], Any]) -> None:
        self._function = function
        self._log = log
        self._more = more

    def __call__(self, what: Any) -> Any:
        with self._log.open("ab") as log:
            log.write(f"{getattr(what, 'name', what)}\n".encode())
        self._more()
        return self._function(what)


def storm(folder: str, path: str, log: str, trouble: str) -> list[dict[str, Any]]:
    """In a child: what eight forked processes take for the model's identity.

    The first goes ahead and is inside `identify` until the other seven wait for it. With
    ``trouble`` it is killed there or meets an error; its own answer comes first.
    """
    reports, gate = os.pipe(), os.pipe()

    def held() -> None:
        os.write(reports[1], b"h")
        os.read(gate[0], 1)
        if trouble == "error":
            raise MemoryError("this process alone has none left")

    def work(more: Callable[[], Any]) -> dict[str, Any]:
        graph_memo.identify = Counted(graph_memo.identify, Path(log), more)  # type: ignore[assignment]

        def sink(event: Event) -> None:
            if event.kind is EventKind.WAITED and event.space == "memo/1":
                os.write(reports[1], b"w")

        with Cache.open(folder, strict=True, sink=sink) as cache:
            later = FakeClock(os.stat(path).st_ctime + 1)  # what is too new is not remembered
            graph = GraphMemo(CacheMemo(cache), later).identify(Path(path))
            return {"weights": graph.weights.hex()}

    first = Forked(lambda: work(held))
    assert os.read(reports[0], 1) == b"h"
    others = [Forked(lambda: work(list)) for _ in range(STORM - 1)]
    waiting = 0
    while waiting < STORM - 1:
        waiting += len(os.read(reports[0], STORM))
    if trouble == "killed":
        os.kill(first.pid, signal.SIGKILL)
    else:
        os.write(gate[1], b"g")
    return [each.result() for each in (first, *others)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(mlp(seed=3), tmp_path / "m.onnx")


def answers(model: Path, trouble: str) -> tuple[list[dict[str, Any]], int]:
    """What the eight say, and how often the model was read."""
    log = model.parent / "log"
    arguments = (str(model.parent / "c"), str(model), str(log), trouble, {})
    found = result(child(f"{__name__}:storm", *arguments))
    return found, len(log.read_text().splitlines())


def test_eight_processes_read_the_model_once(model: Path) -> None:
    found, readings = answers(model, "")
    assert found == [{"weights": graph_memo.identify(model).weights.hex()}] * STORM
    assert readings == 1


@pytest.mark.parametrize(
    ("trouble", "leader"),
    [
        ("killed", {"exit": -signal.SIGKILL}),
        ("error", {"raised": "MemoryError: this process alone has none left"}),
    ],
)
def test_the_trouble_of_who_reads_is_not_that_of_the_others(
    trouble: str, leader: dict[str, Any], model: Path
) -> None:
    found, readings = answers(model, trouble)
    assert found[0] == leader
    assert found[1:] == [{"weights": graph_memo.identify(model).weights.hex()}] * (STORM - 1)
    assert 2 <= readings <= STORM


def facts(folder: str, backend: str, log: str) -> list[dict[str, Any]]:
    """In a child: what eight forked processes take for the framework's identity."""
    gate = os.pipe()

    def work() -> dict[str, Any]:
        installed._hash = Counted(installed._hash, Path(log), list)  # type: ignore[assignment]
        os.read(gate[0], 1)
        with Cache.open(folder, strict=True) as cache:
            found = make_backend(backend).facts(CacheMemo(cache))
            return {"libraries": found.libraries, "record": found.record}

    processes = [Forked(work) for _ in range(STORM)]
    os.write(gate[1], b"g" * STORM)
    return [each.result() for each in processes]


@pytest.mark.parametrize("backend", BACKENDS)
def test_eight_processes_read_every_library_once(backend: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = result(child(f"{__name__}:facts", str(tmp_path / "c"), backend, str(log), {}))
    expected = make_backend(backend).facts()
    assert found == [{"libraries": expected.libraries, "record": expected.record}] * STORM
    read = log.read_text().splitlines()
    assert len(read) == len(set(read)) == len(expected.libraries)
