"""What a process does while another one compiles the plan that it wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cases import BACKENDS, Wrapped, answer, make_backend
from tests.support.onnx_models import mlp, save

from trivet.cache import Cache
from trivet.errors import MissingExtra
from trivet.plans import Plans, Source


class Watched(Wrapped):
    """A backend with something to do before it compiles and before each import."""

    def __init__(
        self, name: str, *, compiles: Callable[[], Any] = list, imports: Callable[[], Any] = list
    ) -> None:
        super().__init__(make_backend(name))
        self._compiles, self._imports = compiles, imports
        self.imported = 0

    def warm_import(self) -> None:
        self.imported += 1
        self._imports()
        self._backend.warm_import()

    def compile(self, *arguments: Any) -> Any:
        self._compiles()
        return self._backend.compile(*arguments)


class Leader:
    """Another user of the folder, inside its compile until it is told to go on."""

    def __init__(self, folder: Path, model: Path, backend: str) -> None:
        self.compiling, self.may_go = threading.Event(), threading.Event()
        self._cache = Cache.open(folder, strict=True)
        watched: Any = Watched(backend, compiles=self._hold)
        self._plans = Plans(self._cache, watched)
        self._thread = threading.Thread(target=lambda: self._plans.load(model), daemon=True)
        self._thread.start()
        assert self.compiling.wait(60)

    def _hold(self) -> None:
        self.compiling.set()
        assert self.may_go.wait(60), "who waits was to import"

    def close(self) -> None:
        self.may_go.set()
        self._thread.join(60)
        self._cache.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(mlp(seed=3), tmp_path / "m.onnx")


@pytest.fixture(params=BACKENDS)
def leader(request: pytest.FixtureRequest, tmp_path: Path, model: Path) -> Iterator[Leader]:
    made = Leader(tmp_path / "c", model, request.param)
    yield made
    made.close()


@pytest.fixture
def backend(request: pytest.FixtureRequest, leader: Leader) -> str:
    return str(request.node.callspec.params["leader"])


def test_who_waits_imports_meanwhile(
    leader: Leader, backend: str, tmp_path: Path, model: Path
) -> None:
    watched: Any = Watched(backend, imports=leader.may_go.set)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        plan = Plans(cache, watched).load(model)
        assert (plan.source, watched.imported) == (Source.CACHE, 2)


def test_an_import_that_fails_meanwhile_is_tried_again(
    leader: Leader, backend: str, tmp_path: Path, model: Path
) -> None:
    def fail_once() -> None:
        if not leader.may_go.is_set():
            leader.may_go.set()
            raise RuntimeError("not now")

    watched: Any = Watched(backend, imports=fail_once)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        assert Plans(cache, watched).load(model).source is Source.CACHE


def test_a_framework_that_is_missing_is_missed_after_the_waiting_too(
    leader: Leader, backend: str, tmp_path: Path, model: Path
) -> None:
    def fail() -> None:
        leader.may_go.set()
        raise MissingExtra("it is not here")

    watched: Any = Watched(backend, imports=fail)
    with (
        Cache.open(tmp_path / "c", strict=True) as cache,
        pytest.raises(MissingExtra, match="not here"),
    ):
        Plans(cache, watched).load(model)
    assert watched.imported == 2


@pytest.mark.parametrize("name", BACKENDS)
def test_who_does_not_wait_imports_once(name: str, tmp_path: Path, model: Path) -> None:
    compiles: Any = Watched(name)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        assert Plans(cache, compiles).load(model).source is Source.COMPILED
    loads: Any = Watched(name)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        assert Plans(cache, loads).load(model).source is Source.CACHE
    assert (compiles.imported, loads.imported) == (1, 1)
    assert answer(tmp_path / "c", model, name)["source"] == "cache"
