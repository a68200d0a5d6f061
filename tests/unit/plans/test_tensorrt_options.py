"""TensorRT's keys, options, GPU and failures, on a stand-in for TensorRT."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.fake_tensorrt import bindings
from tests.support.fake_tensorrt.install import installed, make, show_gpus
from tests.support.onnx_models import dynamic_batch, save

from trivet.cache import Cache
from trivet.errors import BackendError, CorruptEntry, MissingExtra
from trivet.plans import Plans, Shapes, Source
from trivet.plans.backend import FailureKind
from trivet.plans.backends import TensorRt
from trivet.plans.backends.tensorrt_executable import DTYPES
from trivet.plans.backends.tensorrt_options import FLAGS
from trivet.plans.errors import PlanFailed
from trivet.plans.graph import identify
from trivet.plans.host import read_host

API: dict[str, set[str]] = {
    name: set(members.split())
    for name, members in json.loads(
        (Path(bindings.__file__).parent / "api.json").read_text()
    ).items()
}


@pytest.fixture
def machine_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with installed(tmp_path / "machine", monkeypatch) as folder:
        yield folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(dynamic_batch(16), tmp_path / "model.onnx")


def fields(backend: TensorRt, **environment: str) -> dict[str, Any]:
    backend.facts()
    return dict(backend.key_fields(read_host(environment)))


# -- the stand-in --------------------------------------------------------------------------------


def test_the_stand_in_has_nothing_that_the_real_bindings_lack() -> None:
    """`api.json` lists what the bindings of TensorRT 10.14 and 11.4 both have."""
    for name, members in API.items():
        mine = getattr(bindings, name, None) if name else None
        if not inspect.isclass(mine):
            continue
        instance = {each for each in vars(mine) if not each.startswith("_")}
        allowed = members | API.get(f"{name} of 10.14", set())
        assert instance <= allowed, name
    assert set(API[""]) >= {"init_libnvinfer_plugins", "get_plugin_registry"}


def test_flags_and_types_are_those_of_the_real_bindings() -> None:
    assert set(FLAGS) <= API["BuilderFlag"] | API["BuilderFlag of 10.14"]
    assert set(DTYPES) <= API["DataType"]
    assert "builder_optimization_level" in API["IBuilderConfig"]
    assert "num_io_tensors" in API["ICudaEngine"]


# -- plans ---------------------------------------------------------------------------------------


def test_a_bucket_is_built_once_and_found(machine_: Path, model: Path, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 3 * 16, dtype=np.float32).reshape(3, 16)
    with Cache.open(tmp_path / "cache") as cache:
        found = []
        for _ in range(2):
            plan = Plans(cache, make(), on_failure="refuse").open(model, Shapes("x=N{4,8}x16"))
            found.append((plan.run({"x": x})["y"], plan.source))
            assert plan.loaded.executable.inputs[0].shape == (4, 16)
    assert [each for _, each in found] == [Source.COMPILED, Source.CACHE]
    assert found[0][0].shape == (3, 16)
    assert np.array_equal(found[0][0], found[1][0])


def test_an_axis_without_a_size_is_refused(machine_: Path, model: Path, tmp_path: Path) -> None:
    with Cache.open(tmp_path / "cache") as cache, pytest.raises(PlanFailed, match="shape rules"):
        Plans(cache, make(), on_failure="refuse").load(model)


def test_what_the_builder_is_told_is_what_was_asked_for(
    machine_: Path, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "staging").mkdir()
    cache = tmp_path / "timing"
    cache.write_bytes(b"of this GPU")
    backend = make(
        flags={"FP16": True, "TF32": False},
        workspace=1 << 20,
        optimization_level=5,
        strongly_typed=True,
        timing_cache=cache,
    )
    backend.compile(model, identify(model), {"x": (2, 16)}, tmp_path / "staging")
    engine = (tmp_path / "staging" / "plan.engine").read_bytes()
    assert json.loads(engine.splitlines()[1]) == {
        "flags": ["FP16"],
        "pools": {"WORKSPACE": 1 << 20},
        "level": 5,
        "network": 2,
    }


def test_a_timing_cache_of_another_gpu_is_refused(
    machine_: Path, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "staging").mkdir()
    (tmp_path / "timing").write_bytes(b"of another")
    backend = make(timing_cache=tmp_path / "timing")
    with pytest.raises(BackendError, match="another GPU"):
        backend.compile(model, identify(model), {"x": (2, 16)}, tmp_path / "staging")


def test_an_engine_that_tensorrt_refuses_and_one_that_is_cut(
    machine_: Path, tmp_path: Path
) -> None:
    (tmp_path / "plan.engine").write_bytes(b"another build's")
    detail = {"inputs": [], "outputs": [], "size": 15}
    with pytest.raises(BackendError, match="refuses the engine"):
        make().load(tmp_path, detail)
    with pytest.raises(CorruptEntry):
        make().load(tmp_path, {**detail, "size": 16})


# -- keys ----------------------------------------------------------------------------------------


def test_the_gpu_and_its_driver_are_in_the_key(machine_: Path) -> None:
    one = fields(make())
    assert one["gpu"]["model"] == "NVIDIA H200"
    assert "580.95.05" in one["gpu"]["driver"]
    show_gpus(machine_, "NVIDIA H200", driver="595.10.01")
    assert fields(make())["gpu"] != one["gpu"]
    show_gpus(machine_, "NVIDIA H100 80GB HBM3")
    assert fields(make())["gpu"] != one["gpu"]
    show_gpus(machine_, "NVIDIA H200", "NVIDIA H200")  # which of two alike does not matter
    assert fields(make())["gpu"] == one["gpu"]


def test_options_files_and_environment_are_in_the_key(machine_: Path, tmp_path: Path) -> None:
    plain = fields(make())
    (tmp_path / "p.so").write_bytes(b"plug-in")
    for backend in (
        make(flags={"FP16": True}),
        make(flags={"FP16": False}),
        make(workspace=1 << 30),
        make(optimization_level=2),
        make(strongly_typed=True),
        make(plugins=[tmp_path / "p.so"]),
        make(timing_cache=tmp_path / "p.so"),
    ):
        assert fields(backend) != plain
    with_plugin = make(plugins=[tmp_path / "p.so"])
    before = fields(with_plugin)
    (tmp_path / "p.so").write_bytes(b"patched")
    assert fields(with_plugin) != before
    assert fields(make(), CUDA_FORCE_PTX_JIT="1") != plain
    assert fields(make(), CUDA_VISIBLE_DEVICES="1", CUDA_CACHE_PATH="/x") == plain


def test_libraries_count_by_content(machine_: Path) -> None:
    before = make().facts()
    library = machine_ / "site" / "tensorrt_libs" / "libnvinfer.so.10"
    library.write_text("patched")
    assert make().facts().libraries != before.libraries


# -- refusals ------------------------------------------------------------------------------------


def test_without_a_gpu_there_is_no_key_and_no_plan_and_the_error_says_so(
    machine_: Path, model: Path, tmp_path: Path
) -> None:
    show_gpus(machine_)
    for attempt in (
        lambda: fields(make()),
        lambda: make().compile(model, identify(model), {"x": (2, 16)}, tmp_path),
    ):
        with pytest.raises(BackendError, match="no NVIDIA GPU"):
            attempt()


def test_gpus_of_several_models_are_refused(machine_: Path) -> None:
    show_gpus(machine_, "NVIDIA H200", "NVIDIA L4")
    with pytest.raises(BackendError, match="several models"):
        fields(make())


def test_a_gpu_that_cuda_can_not_use_is_no_verdict_on_the_model(
    machine_: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TENSORRT_NO_CUDA", "1")
    (tmp_path / "staging").mkdir()
    backend = make()
    with pytest.raises(OSError, match="no GPU that it can use") as caught:
        backend.compile(model, identify(model), {"x": (2, 16)}, tmp_path / "staging")
    assert backend.classify(caught.value) is FailureKind.TRANSIENT


def test_a_flag_that_the_installed_release_lacks_is_named(
    machine_: Path, model: Path, tmp_path: Path
) -> None:
    backend = make(flags={"FP16": True, "BF16": True})
    assert [each.message for each in backend.lint()] == ["the installed TensorRT has no flag BF16"]
    (tmp_path / "staging").mkdir()
    with pytest.raises(BackendError, match="has no flag BF16"):
        backend.compile(model, identify(model), {"x": (2, 16)}, tmp_path / "staging")


@pytest.mark.parametrize(
    "options",
    [
        {"flags": {"NO_SUCH": True}},
        {"flags": {"STRIP_PLAN": True}},
        {"flags": {"VERSION_COMPATIBLE": True}},
        {"flags": {"FP16": 1}},
        {"workspace": 0},
        {"optimization_level": 6},
        {"plugins": ["/no/such.so"]},
        {"plugins": "plugin.so"},
        {"timing_cache": "/no/such/file"},
    ],
)
def test_options_that_no_plan_can_honour_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BackendError):
        TensorRt(**options)


def test_without_tensorrt_the_error_names_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=r"trivet\[tensorrt\]"):
        TensorRt().facts()
    assert [each.code for each in TensorRt().lint()] == ["not-installed"]
