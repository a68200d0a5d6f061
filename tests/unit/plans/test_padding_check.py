"""The look at what padding does: what it asks, what it refuses, what it remembers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cases import make_backend
from tests.support.living import Living
from tests.support.onnx_models import dynamic_batch, save

from trivet.cache import Cache
from trivet.errors import ShapeError
from trivet.keys import Key
from trivet.plans import Plans, Source
from trivet.plans.model import TensorInfo
from trivet.plans.padding_check import PaddingCheck
from trivet.plans.shapes import Shapes

Array = np.ndarray[Any, Any]
KEY = Key("plan/1", {"name": "m"})


class Model:
    """Runs a function on ``x``; remembers what it was asked."""

    native = None

    def __init__(self, compute: Callable[[Array], Array], dtype: str = "float32") -> None:
        self.inputs = (TensorInfo("x", dtype, ("n", 3)),)
        self.outputs = (TensorInfo("y", dtype, ("n", 3)),)
        self.compute = compute
        self.asked: list[Array] = []

    def run(self, inputs: Any) -> dict[str, Array]:
        self.asked.append(inputs["x"].copy())
        return {"y": self.compute(inputs["x"])}


def require(
    model: Model,
    rules: Shapes | None = None,
    *,
    cache: Cache | None = None,
    plan: Model | None = None,
    operators: tuple[str, ...] = (),
    bucket: int = 0,
    uncompiled: bool = False,
) -> None:
    rules = rules or Shapes("x=N{4}x3")
    bound = rules.bind(model.inputs, model.outputs)
    check = PaddingCheck(cache or Cache(), rules, bound, operators, (1e-4, 1e-5), lambda: model)
    check.require(plan or model, KEY, bound.variants()[bucket], uncompiled=uncompiled)


def centred(x: Array) -> Array:
    """Subtracts the batch's mean: rows depend on each other."""
    return np.asarray(x - x.mean(axis=0))


def test_rows_that_do_not_depend_on_each_other_may_be_padded() -> None:
    model = Model(np.tanh)
    require(model)
    sizes = [each.shape[0] for each in model.asked]
    assert sizes == [1, 4], "the smallest request, alone and padded"


def test_the_largest_request_is_tried_where_the_model_does_not_take_the_smallest() -> None:
    def window_of_two(x: Array) -> Array:
        assert len(x) > 1
        return x

    model = Model(window_of_two)
    require(model)
    assert [each.shape[0] for each in model.asked] == [1, 3, 4]


def test_rows_that_depend_on_the_padding_are_refused() -> None:
    with pytest.raises(ShapeError, match="'y' has other values, for x=1x3"):
        require(Model(centred))


def test_only_requests_that_a_bucket_gets_are_tried() -> None:
    model = Model(np.tanh)
    require(model, Shapes("x=N{2,8}x3"), bucket=1)
    assert [each.shape[0] for each in model.asked] == [3, 8]


def test_the_verdict_is_kept_for_each_plan_and_set_of_rules() -> None:
    with Cache() as cache:
        for _ in range(2):
            with pytest.raises(ShapeError):
                require(Model(centred), cache=cache)
        model = Model(centred)
        with pytest.raises(ShapeError):
            require(model, cache=cache)
        assert not model.asked
        with pytest.raises(ShapeError):
            require(model, Shapes("x=N{4}x3", pad={"x": 2.0}), cache=cache)
        assert model.asked, "another pad value is another question"


def test_a_model_that_answers_differently_each_time_is_not_refused() -> None:
    random = np.random.default_rng(0)
    require(Model(lambda x: random.random(x.shape, np.float32)))


def test_a_model_that_takes_no_other_size_is_said_to_be_unchecked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def only_four(x: Array) -> Array:
        assert len(x) == 4
        return x

    require(Model(only_four))
    assert "can't be checked" in caplog.text


def test_that_the_model_itself_passes_says_nothing_about_a_plan_that_is_made_later() -> None:
    with Cache() as cache:
        require(Model(np.tanh), cache=cache, uncompiled=True)
        with pytest.raises(ShapeError, match="other values"):
            require(Model(np.tanh), cache=cache, plan=Model(centred))


def test_a_model_and_its_plan_are_never_in_memory_together(tmp_path: Path) -> None:
    path = save(dynamic_batch(), tmp_path / "m.onnx")
    rules = Shapes("x=N{4}x16")
    with Cache.open(tmp_path / "c", strict=True) as cache:
        for source, log in (
            (Source.COMPILED, ["fallback", "compile"]),
            (Source.CACHE, ["load"]),
        ):
            backend = Living(make_backend("onnxruntime"))
            plan = Plans(cache, backend).load(path, rules)  # type: ignore[arg-type]
            assert (plan.source, backend.log, backend.most) == (source, log, 1)
        for entry in list(cache.entries("padding/3")):
            cache.host_only.forget(entry.key)
        backend = Living(make_backend("onnxruntime"))
        plan = Plans(cache, backend).load(path, rules)  # type: ignore[arg-type]
        assert (plan.source, backend.log, backend.most) == (Source.CACHE, ["fallback", "load"], 1)


def test_a_model_that_does_not_load_uncompiled_has_its_plan_first(tmp_path: Path) -> None:
    path = save(dynamic_batch(), tmp_path / "m.onnx")

    class OnlyCompiles(Living):
        def fallback(self, *arguments: Any) -> Any:
            super().fallback(*arguments)
            raise RuntimeError("not without a plan")

    backend = OnlyCompiles(make_backend("onnxruntime"))
    with Cache.open(tmp_path / "c", strict=True) as cache:
        with pytest.raises(RuntimeError, match="not without a plan"):
            Plans(cache, backend).load(path, Shapes("x=N{4}x16"))  # type: ignore[arg-type]
        assert [each.descriptor.failure for each in cache.entries("plan/1")] == [None]


def test_a_failing_run_is_no_verdict() -> None:
    def fails(_: Array) -> Array:
        raise RuntimeError("out of memory")

    with Cache() as cache:
        with pytest.raises(ShapeError, match=r"fails for a request that is padded.*out of memory"):
            require(Model(np.tanh), cache=cache, plan=Model(fails))
        require(Model(np.tanh), cache=cache)


@pytest.mark.parametrize("pad", [0, 1, 7])
def test_made_up_integers_are_not_the_pad_value(pad: int) -> None:
    """A model may find its padding by value; real requests hold no such elements."""

    def ignores(x: Array) -> Array:
        real = x != pad
        return np.asarray(np.where(real, x - np.sum(x * real, axis=0), 0))

    model = Model(lambda x: np.asarray(np.where(x != pad, x, 0)), "int64")
    require(model, Shapes("x=N{4}x3", pad={"x": pad}))
    assert all(pad not in asked for asked in model.asked if len(asked) < 4)
    require(Model(ignores, "int64"), Shapes("x=N{4}x3", pad={"x": pad}))


def test_made_up_integers_are_not_all_alike() -> None:
    def standardised(x: Array) -> Array:
        real = x[x != 0]
        return np.asarray(x - x.mean() if real.std() > 0 else x, np.float32)

    with pytest.raises(ShapeError, match="'y' has other values"):
        require(Model(standardised, "int64"))


def test_a_model_that_takes_none_but_zeros_and_ones_is_checked_with_ones() -> None:
    def kinds(x: Array) -> Array:
        return np.asarray([1.0, 2.0])[x]  # raises for what lies beyond

    model = Model(kinds, "int64")
    require(model)
    assert max(asked.max() for asked in model.asked) > 1, "others were tried"
    with pytest.raises(ShapeError):
        require(Model(lambda x: np.asarray(kinds(x) / len(x)), "int64"))


def test_made_up_integers_are_less_than_any_size_that_they_may_stand_for() -> None:
    def last(x: Array) -> Array:
        """The elements before a length that each row says itself, as a mask."""
        lengths = x[:, :1]
        assert (lengths <= x.shape[1]).all()
        return np.asarray(np.where(np.arange(x.shape[1]) < lengths, x, 0))

    model = Model(last, "int64")
    model.inputs = (TensorInfo("x", "int64", ("n", "l")),)
    model.outputs = (TensorInfo("y", "int64", ("n", "l")),)
    require(model, Shapes("x=N{4}xL{8}"))


@pytest.mark.parametrize(
    ("operators", "refused"), [((), True), ((":DynamicQuantizeLinear",), False)]
)
def test_a_scale_shared_by_a_batch_is_not_taken_for_padding(
    operators: tuple[str, ...], refused: bool
) -> None:
    def coarse(x: Array) -> Array:
        step = (1.0 + 0.01 * len(x)) / 127
        return np.asarray(np.round(x / step) * step, np.float32)

    if refused:
        with pytest.raises(ShapeError):
            require(Model(coarse), operators=operators)
    else:
        require(Model(coarse), operators=operators)


def test_other_infinities_and_nan_are_other_values() -> None:
    with pytest.raises(ShapeError, match="other values"):
        require(Model(lambda x: np.where(len(x) == 4, np.float32(np.nan), x)))
    require(Model(lambda x: np.full_like(x, np.nan)))
    require(Model(lambda x: np.full_like(x, np.inf)))


@pytest.mark.parametrize("leak", [np.max, np.min])
def test_padding_is_found_where_all_axes_are_padded(leak: Callable[..., Array]) -> None:
    """As in the largest of a signal's samples: zeros change it where no sample is above zero."""
    model = Model(lambda x: np.asarray(leak(x, axis=1, keepdims=True)))
    model.inputs = (TensorInfo("x", "float32", ("n", "l")),)
    model.outputs = (TensorInfo("y", "float32", ("n", 1)),)
    with pytest.raises(ShapeError, match="'y' has other values"):
        require(model, Shapes("x=N{4}xL{8}"))


def test_without_memory_for_a_check_the_plan_is_used_and_checked_the_next_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def too_much(_: Array) -> Array:
        raise MemoryError("too much")

    with Cache() as cache:
        require(Model(too_much), cache=cache, plan=Model(centred))
        assert "can't be checked now" in caplog.text
        with pytest.raises(ShapeError):
            require(Model(centred), cache=cache)


def test_half_precision_may_be_rounded_otherwise() -> None:
    def rounded(x: Array, units: int) -> Array:
        return np.asarray(x * (1 + units * 2.0**-10 * (len(x) == 4)), np.float16)

    require(Model(lambda x: rounded(x, 2), "float16"))
    with pytest.raises(ShapeError, match="other values"):
        require(Model(lambda x: rounded(x, 40), "float16"))
