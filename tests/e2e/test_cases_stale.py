"""Field cases: the model file changed, and the old plan must not answer."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.support.cases import (
    BACKENDS,
    Wrapped,
    answer,
    answer_elsewhere,
    close,
    ir_model,
    make_backend,
    mlp_answer,
    mlp_input,
)
from tests.support.onnx_models import external_data, let_time_pass, mlp, save

from trivet.cache import Cache
from trivet.errors import ModelError
from trivet.plans import ModelChanged
from trivet.plans.backend import Backend
from trivet.plans.plans import Plans
from trivet.plans.shapes import Shapes

OLD, NEW = mlp(seed=1), mlp(seed=2)
X = mlp_input()


def expect(folder: Path, model: Path, backend: str, proto: onnx.ModelProto, source: str) -> None:
    """One answer and one more: right, and from where they should be."""
    found = answer(folder, model, backend, strict=True)
    assert (found["source"], close(found, mlp_answer(proto, X))) == (source, True), found
    found = answer(folder, model, backend, strict=True)
    assert (found["source"], close(found, mlp_answer(proto, X))) == ("cache", True), found


@pytest.mark.parametrize("backend", BACKENDS)
def test_external_weights_changed_and_the_onnx_file_untouched(backend: str, tmp_path: Path) -> None:
    model = external_data(tmp_path / "m", OLD)
    expect(tmp_path / "c", model, backend, OLD, "compiled")
    before = model.stat()
    weights = (external_data(tmp_path / "new", NEW).parent / "weights.bin").read_bytes()
    (model.parent / "weights.bin").write_bytes(weights)
    assert model.stat() == before
    found = answer_elsewhere(tmp_path / "c", model, backend, strict=True)
    assert (found["source"], close(found, mlp_answer(NEW, X))) == ("compiled", True), found


def test_only_the_bin_of_an_ir_changed(tmp_path: Path) -> None:
    model, other = ir_model(tmp_path / "m", OLD), ir_model(tmp_path / "new", NEW)
    expect(tmp_path / "c", model, "openvino", OLD, "compiled")
    before = model.stat()
    shutil.copyfile(other.with_suffix(".bin"), model.with_suffix(".bin"))
    assert model.stat() == before
    expect(tmp_path / "c", model, "openvino", NEW, "compiled")


def in_place(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)


def by_rename(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    os.utime(temporary, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    temporary.rename(path)


@pytest.mark.parametrize("replace", [in_place, by_rename])
@pytest.mark.parametrize("kind", ["onnx", "external", "ir"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_other_weights_under_the_same_path_size_and_preserved_time(
    backend: str, kind: str, replace: Callable[[Path, bytes], None], tmp_path: Path
) -> None:
    """As `rsync -t`, tar and image layers with fixed dates leave it."""
    if kind == "ir" and backend == "onnxruntime":
        backend, kind = "openvino", "onnx"  # ONNX Runtime reads no IR; one more of the other
    make: dict[str, Callable[[Path, onnx.ModelProto], Path]] = {
        "onnx": lambda folder, proto: save(proto, folder / "m.onnx"),
        "external": external_data,
        "ir": ir_model,
    }
    model, other = make[kind](tmp_path / "m", OLD), make[kind](tmp_path / "new", NEW)
    name = {"onnx": "m.onnx", "external": "weights.bin", "ir": "model.bin"}[kind]
    file, content = model.parent / name, (other.parent / name).read_bytes()
    long_ago = 1_700_000_000_000_000_000
    for each in model.parent.iterdir():
        os.utime(each, ns=(long_ago, long_ago))
        let_time_pass(each)  # so that the memo remembers it
    expect(tmp_path / "c", model, backend, OLD, "compiled")
    assert file.stat().st_size == len(content)
    replace(file, content)
    os.utime(file, ns=(long_ago, long_ago))
    expect(tmp_path / "c", model, backend, NEW, "compiled")


@pytest.mark.parametrize("backend", BACKENDS)
def test_going_back_to_old_weights_finds_the_old_plan(backend: str, tmp_path: Path) -> None:
    model = save(OLD, tmp_path / "m.onnx")
    expect(tmp_path / "c", model, backend, OLD, "compiled")
    save(NEW, model)
    expect(tmp_path / "c", model, backend, NEW, "compiled")
    save(OLD, model)
    expect(tmp_path / "c", model, backend, OLD, "cache")


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_models_with_the_same_names_and_shapes_have_two_plans(
    backend: str, tmp_path: Path
) -> None:
    for proto, folder in ((OLD, "a"), (NEW, "b")):
        model = save(proto, tmp_path / folder / "model.onnx")
        expect(tmp_path / "c", model, backend, proto, "compiled")


class Meanwhile(Wrapped):
    """A backend during whose ``compile`` something happens to the model."""

    def __init__(self, backend: Backend, moment: str, what: Callable[[], object]) -> None:
        super().__init__(backend)
        self._moment = moment
        self._what = what
        self.compiled = 0

    def compile(self, *arguments: Any) -> Any:
        self.compiled += 1
        if self._moment == "before":
            self._what()
        built = self._backend.compile(*arguments)
        if self._moment == "after":
            self._what()
        return built


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_replaced_while_it_is_compiled_is_compiled_again(
    backend: str, moment: str, tmp_path: Path
) -> None:
    """What was read belongs to one content, the key to another: nothing is stored, and neither a
    plan nor a failure is blamed on the old content."""
    model = save(OLD, tmp_path / "m.onnx")
    done = threading.Event()

    def replace() -> None:
        if not done.is_set():
            done.set()
            save(NEW, tmp_path / "new.onnx").rename(model)

    wrapped = Meanwhile(make_backend(backend), moment, replace)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        plan = Plans(cache, wrapped).load(model)
        assert (str(plan.source), wrapped.compiled) == ("compiled", 2)
        assert close({"y": plan.run({"x": X})["y"].ravel()}, mlp_answer(NEW, X))
        assert [each.descriptor.failure for each in cache.entries("plan/1")] == [None]
    expect(tmp_path / "c", model, backend, NEW, "cache")
    save(OLD, model)
    expect(tmp_path / "c", model, backend, OLD, "compiled")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_half_copied_model_is_not_blamed_on_the_old_one(backend: str, tmp_path: Path) -> None:
    """A file that is being overwritten does not parse; that is no failure of what was there."""
    model = save(OLD, tmp_path / "m.onnx")
    whole = model.read_bytes()
    steps = iter((whole[: len(whole) // 2], whole[: len(whole) // 3]))

    def tear() -> None:
        model.write_bytes(next(steps, whole))

    with Cache.open(tmp_path / "c", strict=True) as cache:
        wrapped = Meanwhile(make_backend(backend), "before", tear)
        with pytest.raises((ModelChanged, ModelError)):
            Plans(cache, wrapped, on_failure="refuse").load(model)
        assert list(cache.entries("plan/1")) == []
    model.write_bytes(whole)
    expect(tmp_path / "c", model, backend, OLD, "compiled")


def test_a_model_replaced_under_a_serving_process_is_never_mixed_with_the_old_one(
    tmp_path: Path,
) -> None:
    """Buckets compiled later, and runs outside the rules, would answer with other weights than the
    buckets that are ready."""
    old, new = mlp(batch="N", seed=1), mlp(batch="N", seed=2)
    model = save(old, tmp_path / "m.onnx")
    with Cache.open(tmp_path / "c", strict=True) as cache:
        plans = Plans(cache, make_backend("onnxruntime"))
        rules = Shapes("x=N{2,4}x16", outside="fallback")
        plan = plans.load(model, rules)
        x = mlp_input(2)
        assert close({"y": plan.run({"x": x})["y"].ravel()}, mlp_answer(old, x))
        save(new, tmp_path / "new.onnx").rename(model)
        assert close({"y": plan.run({"x": x})["y"].ravel()}, mlp_answer(old, x))
        for batch in (4, 9):
            with pytest.raises(ModelChanged):
                plan.run({"x": mlp_input(batch)})
        again = plans.load(model, rules)
        for batch in (2, 4, 9):
            x = mlp_input(batch)
            assert close({"y": again.run({"x": x})["y"].ravel()}, mlp_answer(new, x))


def test_a_model_only_touched_under_a_serving_process_goes_on(tmp_path: Path) -> None:
    proto = mlp(batch="N", seed=1)
    model = save(proto, tmp_path / "m.onnx")
    with Cache.open(tmp_path / "c", strict=True) as cache:
        plan = Plans(cache, make_backend("onnxruntime")).load(
            model, Shapes("x=N{2,4}x16", outside="fallback")
        )
        for batch in (2, 4, 9):
            model.touch()
            x = mlp_input(batch)
            assert close({"y": plan.run({"x": x})["y"].ravel()}, mlp_answer(proto, x))


def test_a_replacement_with_other_inputs_is_bound_anew(tmp_path: Path) -> None:
    model = save(mlp(width=16, seed=1), tmp_path / "m.onnx")
    wider = mlp(width=24, seed=2)
    done = threading.Event()

    def replace() -> None:
        if not done.is_set():
            done.set()
            save(wider, tmp_path / "new.onnx").rename(model)

    with Cache.open(tmp_path / "c", strict=True) as cache:
        plan = Plans(cache, Meanwhile(make_backend("onnxruntime"), "before", replace)).load(model)
        x = mlp_input(4, 24)
        assert plan.inputs[0].shape == (4, 24)
        assert np.allclose(plan.run({"x": x})["y"], mlp_answer(wider, x), atol=1e-4)
