"""Field cases: the second start must hit, and what must differ must not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.cases import (
    BACKENDS,
    BUILDERS,
    Wrapped,
    answer,
    child,
    close,
    ir_model,
    make_backend,
    mlp_answer,
    mlp_input,
    result,
)
from tests.support.onnx_models import mlp, save

from trivet.cache import Cache
from trivet.plans.backend import BackendFacts
from trivet.plans.plans import Plans

OLD, NEW = mlp(seed=13), mlp(seed=14)
X = mlp_input()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(OLD, tmp_path / "m.onnx")


def answers(folder: str, models: list[str], work: str, backend: str) -> list[dict[str, Any]]:
    """In a child: one answer for each model, given in another working folder by relative path."""
    os.chdir(work)
    return [answer(folder, os.path.relpath(each), backend, strict=True) for each in models]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_start_hits_wherever_and_however_it_runs(backend: str, tmp_path: Path) -> None:
    """Another path, file name, working folder, home, host name, hash seed, process, file time."""
    first, second = [], []
    for name, build in BUILDERS.items():
        first.append(save(build(), tmp_path / "one" / f"{name}.onnx"))
    if backend == "openvino":
        first.append(ir_model(tmp_path / "one", OLD, "ir"))
    (tmp_path / "two").mkdir()
    for path in first:
        copy = tmp_path / "two" / f"renamed-{path.name}"
        shutil.copyfile(path, copy)
        if path.suffix == ".xml":
            shutil.copyfile(path.with_suffix(".bin"), copy.with_suffix(".bin"))
        second.append(copy)
    found = []
    for number, models in enumerate((first, second)):
        (tmp_path / f"home{number}").mkdir()
        job = child(
            f"{__name__}:answers",
            str(tmp_path / "c"),
            [*map(str, models)],
            str(models[0].parent),
            backend,
            {},
            HOME=str(tmp_path / f"home{number}"),
            TMPDIR=str(tmp_path / f"home{number}"),
            PYTHONHASHSEED=str(number + 1),
            HOSTNAME=f"pod-{number}",
            POD_IP=f"10.0.0.{number}",
            LANG=("C.UTF-8", "C")[number],
            COLUMNS=str(80 + number),
        )
        found.append(result(job))
    assert [each["source"] for each in found[0]] == ["compiled"] * len(first)
    assert [each["source"] for each in found[1]] == ["cache"] * len(first), found[1]
    assert [each["y"] for each in found[0]] == [each["y"] for each in found[1]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copied_cache_folder_still_hits(backend: str, model: Path, tmp_path: Path) -> None:
    """No key and no plan holds the path of the cache, and nothing leads back to the original."""
    answer(tmp_path / "c", model, backend)
    shutil.copytree(tmp_path / "c", tmp_path / "elsewhere" / "c")
    shutil.rmtree(tmp_path / "c")
    found = answer(tmp_path / "elsewhere" / "c", model, backend, strict=True)
    assert (found["source"], close(found, mlp_answer(OLD, X))) == ("cache", True)


def key_of(model: Path, folder: Path, backend: str, environment: Mapping[str, str]) -> bytes:
    with Cache.open(folder) as cache:
        plans = Plans(cache, make_backend(backend), environment=environment)
        ((_, key),) = plans.keys(model)
        return key.digest


READ = {
    "onnxruntime": ("ORT_NEVER_HEARD_OF", "MLAS_X", "LD_PRELOAD", "GLIBC_TUNABLES"),
    "openvino": ("ONEDNN_MAX_CPU_ISA", "OV_NEVER_HEARD_OF", "TBB_X", "LD_LIBRARY_PATH"),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_environment_counts_as_far_as_the_framework_reads_it(
    backend: str, model: Path, tmp_path: Path
) -> None:
    plain = key_of(model, tmp_path / "c", backend, {})
    changed = {name: key_of(model, tmp_path / "c", backend, {name: "2"}) for name in READ[backend]}
    assert len({plain, *changed.values()}) == 1 + len(READ[backend]), changed
    neutral = {
        **dict.fromkeys(("HOME", "PWD", "HOSTNAME", "USER", "SHLVL", "TERM", "PATH"), "/else"),
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "PYTHONHASHSEED": "7",
    }
    assert key_of(model, tmp_path / "c", backend, neutral) == plain


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_changes_what_is_compiled_is_never_mixed(
    backend: str, model: Path, tmp_path: Path
) -> None:
    name = READ[backend][0]
    sources = [
        answer(tmp_path / "c", model, backend, environment=environment)["source"]
        for environment in ({}, {name: "1"}, {}, {name: "1"}, {name: "2"})
    ]
    assert sources == ["compiled", "compiled", "cache", "cache", "compiled"]


# -- versions and releases -----------------------------------------------------------------------


class Installed(Wrapped):
    """A backend as if another build of its framework were installed."""

    def __init__(self, name: str, **facts: Any) -> None:
        super().__init__(make_backend(name))
        self._facts = facts

    def facts(self, memo: Any = None) -> BackendFacts:
        return msgspec.structs.replace(self._backend.facts(memo), **self._facts)


OTHER_BUILDS: Mapping[str, Mapping[str, Any]] = {
    "another version": {"version": "0.0.1"},
    "the same version, a patched library": {"libraries": {"core.so": "0" * 64}},
    "the same version, another wheel": {"record": "0" * 64},
}


@pytest.mark.parametrize("build", OTHER_BUILDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_builds_of_a_runtime_share_a_folder_and_never_a_plan(
    backend: str, build: str, model: Path, tmp_path: Path
) -> None:
    """An upgrade compiles, and rolling it back finds the old plan."""
    seen = []
    with Cache.open(tmp_path / "c", strict=True) as cache:
        for facts in ({}, OTHER_BUILDS[build], {}, OTHER_BUILDS[build]):
            installed: Any = Installed(backend, **facts)
            plan = Plans(cache, installed).load(model)
            seen.append((str(plan.source), plan.loaded.key.digest))
        assert len(list(cache.entries("plan/1"))) == 2
    assert [source for source, _ in seen] == ["compiled", "compiled", "cache", "cache"]
    assert seen[0][1] == seen[2][1] != seen[1][1] == seen[3][1]


def test_why_names_the_field_that_an_upgrade_changed(model: Path, tmp_path: Path) -> None:
    with Cache.open(tmp_path / "c", strict=True) as cache:
        Plans(cache, make_backend("onnxruntime")).load(model)
        upgraded: Any = Installed("onnxruntime", version="9.9")
        plans = Plans(cache, upgraded)
        ((_, key),) = plans.keys(model)
        (nearest,) = plans.why(key)
        # The plan is portable, the key asked for is that of this CPU.
        names = {each.name for each in nearest.differences} - {"host.instruction_set"}
        assert names == {"backend.version"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_release_is_dropped_by_its_tag_and_rolled_back_to_without_compiling(
    backend: str, tmp_path: Path
) -> None:
    one, two = save(OLD, tmp_path / "1.onnx"), save(NEW, tmp_path / "2.onnx")
    with Cache.open(tmp_path / "c", strict=True) as cache:

        def source(path: Path, release: str) -> str:
            return str(Plans(cache, make_backend(backend), release=release).load(path).source)

        assert [source(one, "r1"), source(two, "r2")] == ["compiled", "compiled"]
        assert source(one, "r1") == "cache", "rolled back"
        cache.invalidate("release=r2")
        assert source(one, "r1") == "cache", "a drop reaches no other release"
        assert source(two, "r2") == "compiled"
        assert source(one, "r3") == "cache", "the same content under another release"
        tags = {tag for each in cache.entries("plan/1") for tag in each.descriptor.tags}
        (build,) = (tag for tag in tags if tag.startswith("backend="))
        cache.invalidate(build)
        assert [source(one, "r1"), source(two, "r2")] == ["compiled", "compiled"]
