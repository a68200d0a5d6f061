"""Field cases: compiles that fail, plans that are wrong though intact, and what is kept of both."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from blake3 import blake3
from tests.support.cases import (
    BACKENDS,
    Wrapped,
    answer,
    answer_elsewhere,
    child,
    close,
    make_backend,
    mlp_answer,
    mlp_input,
    result,
)
from tests.support.engine import eventually
from tests.support.onnx_models import mlp, model, save, tensor

from trivet.cache import Cache, Hit
from trivet.entries import FileRecord, Manifest, seal, unseal
from trivet.errors import BackendError
from trivet.events import EventKind
from trivet.keys import Key
from trivet.plans.errors import PlanFailed
from trivet.plans.plans import Plans
from trivet.testing import FakeClock, Recorder

PROTO = mlp(seed=7)
X = mlp_input()
EXPECTED = mlp_answer(PROTO, X)
THREADS = 8


def unsupported() -> onnx.ModelProto:
    """A model with an operator that no runtime has."""
    node = onnx.helper.make_node("Quirk", ["x"], ["y"], domain="com.example.nowhere")
    return model(
        [node],
        [tensor("x", [4])],
        [tensor("y", [4])],
        opset_imports=[
            onnx.helper.make_opsetid("", 17),
            onnx.helper.make_opsetid("com.example.nowhere", 1),
        ],
    )


class Counting(Wrapped):
    """A backend that counts compiles, and does something else than compile where asked to."""

    def __init__(self, name: str, instead: Callable[[], object] | None = None) -> None:
        super().__init__(make_backend(name))
        self._instead = instead
        self.compiled = 0

    def compile(self, *arguments: Any) -> Any:
        self.compiled += 1
        if self._instead is not None:
            self._instead()
        return self._backend.compile(*arguments)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_unsupported_model_is_compiled_once_for_all_threads_and_processes(
    backend: str, tmp_path: Path
) -> None:
    path = save(unsupported(), tmp_path / "m.onnx")
    together = threading.Barrier(THREADS)
    counting: Any = Counting(backend)

    def ask(_: int) -> str:
        together.wait()
        with pytest.raises(PlanFailed) as caught:
            Plans(cache, counting, on_failure="refuse").load(path)
        return caught.value.error_class

    with (
        Cache.open(tmp_path / "c", strict=True) as cache,
        ThreadPoolExecutor(THREADS) as pool,
    ):
        classes = set(pool.map(ask, range(THREADS)))
    assert counting.compiled == 1
    assert len(classes) == 1, "all are told of the same failure"
    recorder = Recorder()
    with Cache.open(tmp_path / "c", strict=True, sink=recorder) as cache:
        again: Any = Counting(backend)
        with pytest.raises(PlanFailed, match=r"Quirk"):
            Plans(cache, again, on_failure="refuse").load(path)
        assert (again.compiled, recorder.count(EventKind.FAILURE_HIT)) == (0, 1)
    elsewhere = result(child(f"{__name__}:refused", str(tmp_path / "c"), str(path), backend, {}))
    assert elsewhere["class"] in classes
    assert elsewhere["counts"]["failure-hit"] == 1
    assert not elsewhere["imported"], "a recorded failure is told without the framework"


def refused(folder: str, path: str, backend: str) -> dict[str, Any]:
    """In a child: how a load is refused."""
    with Cache.open(folder, strict=True) as cache:
        with pytest.raises(PlanFailed) as caught:
            Plans(cache, make_backend(backend), on_failure="refuse").load(path)
        return {
            "class": caught.value.error_class,
            "counts": cache.counts(),
            "imported": backend in sys.modules,
        }


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("backend", BACKENDS)
def test_where_no_plan_can_be_made_the_model_runs_uncompiled(backend: str, tmp_path: Path) -> None:
    path = save(PROTO, tmp_path / "m.onnx")
    for reason in ("absent", "failed before"):
        broken: Any = Counting(backend, failing(BackendError("not with these options")))
        with Cache.open(tmp_path / "c", strict=True) as cache:
            plan = Plans(cache, broken).load(path)
            assert (str(plan.source), plan.loaded.reason) == ("uncompiled", reason)
            assert plan.loaded.error == "BackendError: not with these options"
            assert np.allclose(plan.run({"x": X})["y"], EXPECTED, atol=1e-4)
            assert broken.compiled == (1 if reason == "absent" else 0)


def test_a_recorded_failure_is_tried_again_when_its_time_is_up(tmp_path: Path) -> None:
    path, clock = save(PROTO, tmp_path / "m.onnx"), FakeClock()
    broken: Any = Counting("onnxruntime", failing(BackendError("for now")))
    with Cache.open(tmp_path / "c", strict=True, clock=clock) as cache:
        Plans(cache, broken, failure_lifetime=60).load(path)
        clock.jump(59)
        assert str(Plans(cache, make_backend("onnxruntime")).load(path).source) == "uncompiled"
        clock.jump(2)
        plan = Plans(cache, make_backend("onnxruntime")).load(path)
        assert (str(plan.source), plan.loaded.reason) == ("compiled", "expired")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("bad_alloc"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EMFILE, "Too many open files"),
    ],
    ids=["memory", "disk", "descriptors"],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_may_pass_is_not_recorded_and_every_waiting_thread_is_answered(
    backend: str, error: Exception, tmp_path: Path
) -> None:
    path = save(PROTO, tmp_path / "m.onnx")

    def fail_when_others_wait() -> None:
        eventually(lambda: waiting(recorder) == THREADS - 1, "all others wait")
        raise error

    recorder, broken = Recorder(), Counting(backend, fail_when_others_wait)

    def ask(_: int) -> tuple[str, bool]:
        plan = Plans(cache, broken).load(path)  # type: ignore[arg-type]
        return str(plan.source), np.allclose(plan.run({"x": X})["y"], EXPECTED, atol=1e-4)

    with Cache.open(tmp_path / "c", strict=True, sink=recorder) as cache:
        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(ask, range(THREADS)))
        assert found == [("uncompiled", True)] * THREADS
        assert broken.compiled == 1
        assert list(cache.entries("plan/1")) == []
    assert answer(tmp_path / "c", path, backend, strict=True)["source"] == "compiled"


def waiting(recorder: Recorder) -> int:
    return sum(each.space == "plan/1" for each in recorder.of(EventKind.WAITED))


# -- wrong though intact -------------------------------------------------------------------------


class Miscompiling(Wrapped):
    """A backend that writes another plan than the one that it compiled."""

    def __init__(self, name: str, other: Path) -> None:
        super().__init__(make_backend(name))
        self._other = other

    def compile(self, path: Path, graph: Any, shapes: Any, staging: Path, canary: Any) -> Any:
        right = self._backend.compile(path, graph, shapes, staging, canary)
        for each in staging.iterdir():
            each.unlink()
        wrong = self._backend.compile(self._other, graph, shapes, staging, canary)
        return msgspec.structs.replace(wrong, expected=right.expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_miscompiled_plan_is_never_used(backend: str, tmp_path: Path) -> None:
    path = save(PROTO, tmp_path / "m.onnx")
    wrong: Any = Miscompiling(backend, save(mlp(seed=8), tmp_path / "other.onnx"))
    with Cache.open(tmp_path / "c", strict=True) as cache:
        plan = Plans(cache, wrong).load(path)
        assert (str(plan.source), plan.loaded.error[:14]) == ("uncompiled", "CanaryMismatch")
        assert np.allclose(plan.run({"x": X})["y"], EXPECTED, atol=1e-4)
        assert all(each.descriptor.failure for each in cache.entries("plan/1"))


def poison(cache: Cache, key: Key, donor: Key) -> None:
    """Store, under ``key``, its own canary with the plan of ``donor``: sealed, hashed, wrong."""
    store: Any = cache.store
    (sealed, mine), (_, theirs) = store.artifact(key.digest), store.artifact(donor.digest)
    staging = store.staging()
    shutil.copytree(theirs, staging, dirs_exist_ok=True)
    shutil.copy(mine / "canary", staging / "canary")
    files = sorted(each for each in staging.rglob("*") if each.is_file())
    manifest = Manifest(
        tuple(
            FileRecord(
                each.relative_to(staging).as_posix(),
                each.stat().st_size,
                blake3(each.read_bytes()).digest(),
            )
            for each in files
        )
    )
    opened = unseal(sealed)
    store.publish(key.digest, seal(opened.key, opened.descriptor, manifest.encode()), staging)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_poisoned_plan_is_caught_by_its_canary_at_the_first_load(
    backend: str, tmp_path: Path
) -> None:
    path, other = save(PROTO, tmp_path / "m.onnx"), save(mlp(seed=8), tmp_path / "other.onnx")
    keys = []
    with Cache.open(tmp_path / "c", strict=True) as cache:
        plans = Plans(cache, make_backend(backend))
        keys = [plans.load(each).loaded.key for each in (path, other)]
        poison(cache, keys[0], keys[1])
    found = answer_elsewhere(tmp_path / "c", path, backend)
    assert (found["source"], found["reason"], close(found, EXPECTED)) == (
        "compiled",
        "canary",
        True,
    )
    assert found["quarantined"] == ["the stored plan gives another result than when it was made"]
    found = answer_elsewhere(tmp_path / "c", path, backend)
    assert (found["source"], close(found, EXPECTED)) == ("cache", True)
    assert close(answer(tmp_path / "c", other, backend), mlp_answer(mlp(seed=8), X))


@pytest.mark.parametrize("moment", ["verify", "load"])
def test_a_process_without_descriptors_blames_no_plan(moment: str, tmp_path: Path) -> None:
    """Too many open files, at the wrong moment: answered without the plan, which stays."""
    path = save(PROTO, tmp_path / "m.onnx")
    key = bytes.fromhex(answer(tmp_path / "c", path)["key"])
    if moment == "verify":
        error = result(child(f"{__name__}:verified_without_descriptors", str(tmp_path / "c"), {}))
        assert "Too many open files" in error
    else:
        with Cache.open(tmp_path / "c", strict=True) as cache:
            plan = Plans(cache, Unreadable()).load(path)  # type: ignore[arg-type]
            assert (str(plan.source), plan.loaded.reason) == ("uncompiled", "can't be read now")
            assert np.allclose(plan.run({"x": X})["y"], EXPECTED, atol=1e-4)
    found = answer(tmp_path / "c", path)
    assert (found["source"], found["key"]) == ("cache", key.hex())


class Unreadable(Counting):
    """A backend that can't open a file while it loads."""

    def __init__(self) -> None:
        super().__init__("onnxruntime")

    def load(self, *_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")


def verified_without_descriptors(folder: str) -> str:
    """In a child: the error of verifying a plan when no file can be opened."""
    with Cache.open(folder, strict=True) as cache:
        (entry,) = cache.entries("plan/1")
        found = cache.get_files(entry.key)
        assert isinstance(found, Hit)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, most))
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        try:
            found.value.verify()
        except OSError as error:
            return str(error)
        finally:
            for each in taken:
                os.close(each)
    return "verified"


def test_a_plan_that_passed_is_not_run_again_on_the_same_machine(tmp_path: Path) -> None:
    path = save(PROTO, tmp_path / "m.onnx")
    phases = []
    for canary in ("first", "first", "always", "never"):
        with Cache.open(tmp_path / "c", strict=True) as cache:
            runs = Runs("onnxruntime")
            plans = Plans(cache, runs, canary=canary)  # type: ignore[arg-type]
            plans.load(path)
            phases.append(runs.count)
    assert phases == [2, 0, 1, 0], "twice when it is made, not again, when asked to, never"


class Runs(Wrapped):
    """A backend that counts the runs of its plans."""

    def __init__(self, name: str) -> None:
        super().__init__(make_backend(name))
        self.count = 0

    def compile(self, *arguments: Any) -> Any:
        built = self._backend.compile(*arguments)
        return msgspec.structs.replace(built, executable=self._counted(built.executable))

    def load(self, *arguments: Any) -> Any:
        return self._counted(self._backend.load(*arguments))

    def _counted(self, executable: Any) -> Any:
        real = executable.run

        def run(inputs: Any) -> Any:
            self.count += 1
            return real(inputs)

        executable.run = run
        return executable
