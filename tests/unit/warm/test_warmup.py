"""What a warm-up gets ready, and what it says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.support import onnx_models

from trivet.cache import Cache
from trivet.errors import ShapeOutside
from trivet.plans.activity import OUTSIDE, Activity, PlanUse
from trivet.plans.plan import Observed
from trivet.warm.coverage import RECENT, covered, recent_uses
from trivet.warm.planfile import PlanFileError
from trivet.warm.status import State
from trivet.warm.warmup import Warmup


def plan_file(folder: Path, content: str) -> Path:
    onnx_models.save(onnx_models.dynamic_batch(), folder / "net.onnx")
    path = folder / "plan.toml"
    path.write_text(content)
    return path


BUCKETS = "[[model]]\npath = 'net.onnx'\nshapes = 'x=N{1,8}x16'\n"


def test_the_plan_that_is_served_is_the_one_that_was_warmed(tmp_path: Path) -> None:
    file = plan_file(tmp_path, BUCKETS)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        warmup = Warmup(cache, file)
        assert (warmup.state, warmup.ready) == (State.WAITING, False)
        steps: list[tuple[int, int, str]] = []
        warmup.run(lambda *step: steps.append(step))
        assert warmup.ready
        loads = len(list(Activity(tmp_path / "c")))
        plan = warmup.plan("net.onnx")
        assert plan.run({"x": np.ones((5, 16), np.float32)})["y"].shape == (5, 16)
        assert len(list(Activity(tmp_path / "c"))) == loads, "nothing had to be loaded"
        assert steps[-1] == (2, 2, "")
        with pytest.raises(KeyError, match=r"there are net\.onnx"):
            warmup.plan("other")


def test_a_model_that_has_no_plan_is_served_and_not_called_ready(tmp_path: Path) -> None:
    """A runtime that refuses to write a plan and runs the model all the same."""
    file = plan_file(tmp_path, "[[model]]\npath = 'net.onnx'\n")
    with Cache.open(tmp_path / "c", strict=True) as cache:
        warmup = Warmup(cache, file)
        from trivet.plans.backends.onnxruntime import OnnxRuntime

        def refuse(*_: object) -> None:
            raise RuntimeError("no plan today")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OnnxRuntime, "compile", refuse)
            warmup.run()
        status = warmup.status()
        assert status.state is State.FAILED
        assert "no plan today" in status.failures[0]
        x = np.ones((2, 16), np.float32)
        assert warmup.plan("net.onnx").run({"x": x})["y"].shape == (2, 16)


def test_a_plan_that_loads_and_does_not_run_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its canary was right when it was made, so what it refuses now, it refuses to requests."""
    from trivet.plans.backends.onnxruntime import OnnxRuntime

    class Raising:
        def __init__(self, executable: Any) -> None:
            self.inputs, self.outputs = executable.inputs, executable.outputs

        def run(self, inputs: object) -> None:
            raise RuntimeError("not today")

    file = plan_file(tmp_path, "[[model]]\npath = 'net.onnx'\nshapes = 'x=4x16'\n")
    with Cache.open(tmp_path / "c", strict=True) as cache:
        made = Warmup(cache, file)
        made.run()
        assert made.ready
        real = OnnxRuntime.load
        monkeypatch.setattr(OnnxRuntime, "load", lambda *given: Raising(real(*given)))
        warmup = Warmup(cache, file)
        warmup.run()
        assert warmup.state is State.FAILED
        assert warmup.status().failures == ["net.onnx x=4x16: RuntimeError: not today"]


def test_where_nothing_is_required_and_nothing_got_ready_it_is_not_ready(tmp_path: Path) -> None:
    missing = "[[model]]\npath = 'none.onnx'\nrequired = false\n"
    net = "[[model]]\npath = 'net.onnx'\nrequired = false\n"
    with Cache.open(tmp_path / "c", strict=True) as cache:
        for content, state in ((missing, State.FAILED), (missing + net, State.READY)):
            warmup = Warmup(cache, plan_file(tmp_path, content))
            warmup.run()
            assert warmup.state is state
            told = [] if warmup.ready else ["no model got ready"]
            assert warmup.status().failures == told
        nothing = Warmup(cache, [])
        nothing.run()
        assert not nothing.ready
        assert nothing.status().failures == ["there is no model to get ready"]
        with pytest.raises(PlanFileError, match="there is no model"):
            Warmup(cache, plan_file(tmp_path, "model = []"))


def test_a_model_that_appears_late_is_noted_as_failed_and_can_be_opened(tmp_path: Path) -> None:
    file = plan_file(tmp_path, "[[model]]\npath = 'late.onnx'\n")
    with Cache.open(tmp_path / "c", strict=True) as cache:
        warmup = Warmup(cache, file)
        warmup.run()
        assert warmup.state is State.FAILED
        assert "there is no model file" in warmup.status().failures[0]


def test_requests_outside_the_rules_are_seen_once_a_shape(tmp_path: Path) -> None:
    file = plan_file(tmp_path, BUCKETS)
    with Cache.open(tmp_path / "c", strict=True) as cache:
        warmup = Warmup(cache, file)
        warmup.run()
        plan = warmup.plan("net.onnx")
        for rows in (3, 3, 9, 9, 9, 12):
            x = {"x": np.ones((rows, 16), np.float32)}
            if rows <= 8:
                plan.run(x)
                continue
            with pytest.raises(ShapeOutside):
                plan.run(x)
        assert plan.observed.inside == {"x=8x16": 2}
        assert plan.observed.outside == {"x=9x16": 3, "x=12x16": 1}
        logged = [each for each in Activity(tmp_path / "c") if each.source == OUTSIDE]
        assert [each.bucket for each in logged] == ["x=9x16", "x=12x16"]
        assert "at most 8" in logged[0].error
        (model,) = warmup.status().models
        assert model.coverage is not None
        assert not model.coverage.complete


def use(bucket: str, *, source: str = "cache", time: float = 1e9, **more: str) -> PlanUse:
    facts = {"model": "net.onnx", "graph": "g", "backend": "b", "key": "k", **more}
    return PlanUse(bucket=bucket, source=source, time=time, **facts)


def test_what_was_asked_for_is_held_against_what_was_warmed() -> None:
    uses = [use("x=1"), use("x=1"), use("x=4"), use("x=99", source=OUTSIDE)]
    found = covered(["x=1", "x=2"], uses, Observed(inside={"x=2": 7}, outside={"x=99": 2}))
    assert found.observed == {"x=1": 2, "x=2": 7, "x=4": 1}
    assert found.missing == ["x=4"]
    assert found.outside == {"x=99": 3}
    assert not found.complete
    assert covered(["x=1"], [use("x=1")]).complete


def test_only_recent_uses_of_the_same_model_and_backend_count() -> None:
    now = 2e9
    log = [
        use("x=1", time=now - 1),
        use("x=2", time=now - RECENT - 1),
        use("x=3", time=now - 1, graph="other"),
        use("x=4", time=now - 1, backend="other"),
    ]
    assert [each.bucket for each in recent_uses(log, "g", "b", now)] == ["x=1"]


def test_a_plan_not_worth_keeping_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trivet.plans import maker

    monkeypatch.setattr(maker, "_COLD_READ", 1.0)  # bytes per second: no plan is worth that
    file = plan_file(tmp_path, "[[model]]\npath = 'net.onnx'\n")
    for _ in range(2):
        with Cache.open(tmp_path / "c", strict=True) as cache:
            warmup = Warmup(cache, file)
            warmup.run()
            assert warmup.ready
            assert warmup.status().models[0].variants[0].result == "uncompiled"


def test_a_model_without_made_up_inputs_is_warmed_without_a_run(tmp_path: Path) -> None:
    text = onnx.TensorProto.STRING
    proto = onnx_models.model(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        [onnx_models.tensor("x", [2], text)],
        [onnx_models.tensor("y", [2], text)],
    )
    file = plan_file(tmp_path, "[[model]]\npath = 'text.onnx'\n")
    onnx_models.save(proto, tmp_path / "text.onnx")
    with Cache.open(tmp_path / "c", strict=True) as cache:
        warmup = Warmup(cache, file)
        warmup.run()
        assert warmup.ready
