"""Exported programs as they are loaded, narrowed to shapes, and run uncompiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.torch_programs import WIDTH, dense, save

from trivet.errors import BackendError, ShapeError
from trivet.plans.backends import Torch
from trivet.plans.backends.torch_program import load_program, narrowed, sizes_of, uncompiled
from trivet.plans.backends.torch_weights import read_weights
from trivet.plans.graph import identify

BATCH = torch.export.Dim("batch", min=2, max=64)


class _Arguments(torch.nn.Module):
    def forward(self, x: torch.Tensor, factor: int, *, pair: Any, flag: bool = True) -> Any:
        return {"a": x * factor + pair["p"], "b": [x.sum(), x > 0 if flag else x]}


class _Aliases(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, 3))

    def forward(self, x: torch.Tensor) -> Any:
        return x, x[0], x.t(), self.weight, self.weight + x


class _Half(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16)


class _Derived(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x[::2] + y


def test_constants_and_nested_arguments_keep_their_places(tmp_path: Path) -> None:
    x, p = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
    program = torch.export.export(_Arguments(), (x, 3), {"pair": {"p": p}})
    torch.export.save(program, tmp_path / "model.pt2")
    found = (
        Torch().fallback(tmp_path / "model.pt2", {}).run({"x": x.numpy() + 1, "pair_p": p.numpy()})
    )
    assert list(found) == ["a", "b.0", "b.1"]
    assert np.array_equal(found["a"], (x.numpy() + 1) * 3 + 1)
    assert found["b.0"] == (x + 1).sum()
    assert found["b.1"].dtype == np.bool_


def test_weights_are_on_the_cpu_whatever_the_program_makes_its_default(tmp_path: Path) -> None:
    module = torch.nn.Linear(4, 4)
    path = save(module, tmp_path / "m.pt2", torch.ones(2, 4))
    digest = identify(path).weights
    with torch.device("meta"):
        found = read_weights(torch, path, digest)
    assert torch.equal(found["weight"], module.weight)


def test_outputs_that_are_inputs_weights_or_each_other_are_copies(tmp_path: Path) -> None:
    x = np.arange(9.0, dtype=np.float32).reshape(3, 3)
    model = save(_Aliases(), tmp_path / "model.pt2", torch.zeros(3, 3))
    executable = Torch().fallback(model, {})
    found = executable.run({"x": x})
    assert np.array_equal(found["output_2"], x.T)
    kept = {name: each.copy() for name, each in executable.run({"x": x}).items()}
    for each in found.values():
        each[...] = -1
    again = executable.run({"x": np.arange(9.0, dtype=np.float32).reshape(3, 3)})
    assert all(np.array_equal(again[name], kept[name]) for name in kept)
    assert x.max() == 8


def test_an_array_that_may_not_be_written_is_taken(tmp_path: Path) -> None:
    x = np.ones((4, WIDTH), np.float32)
    x.flags.writeable = False
    assert Torch().fallback(dense(tmp_path / "model.pt2"), {}).run({"x": x})["y"].shape == (4, 4)


def test_a_layout_that_the_example_had_is_not_asked_of_requests(tmp_path: Path) -> None:
    example = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    model = save(
        torch.nn.Conv2d(3, 4, 3), tmp_path / "a.pt2", example, dynamic_shapes=({0: BATCH},)
    )
    graph = identify(model)
    program = narrowed(load_program(model), graph.inputs, {})
    assert all(each.is_contiguous() for each in program.example_inputs[0])
    found = uncompiled(program, graph.inputs, graph.outputs)
    assert found.run({"input": np.ones((9, 3, 8, 8), np.float32)})["output"].shape == (9, 4, 6, 6)


def test_a_program_is_narrowed_within_the_bounds_that_it_was_exported_with(tmp_path: Path) -> None:
    model = dense(tmp_path / "model.pt2")
    inputs = identify(model).inputs
    eight = narrowed(load_program(model), inputs, sizes_of(inputs, {"x": (8, WIDTH)}))
    assert not eight.range_constraints
    with pytest.raises(ShapeError, match="exported for 1 to 64"):
        narrowed(load_program(model), inputs, sizes_of(inputs, {"x": (128, WIDTH)}))


def test_sizes_that_follow_from_others_are_refused(tmp_path: Path) -> None:
    model = save(
        _Derived(),
        tmp_path / "model.pt2",
        torch.ones(8),
        torch.ones(4),
        dynamic_shapes=({0: 2 * BATCH}, {0: BATCH}),
    )
    with pytest.raises(BackendError, match="follow from others"):
        narrowed(load_program(model), identify(model).inputs, {})


def test_types_that_numpy_does_not_have_are_refused(tmp_path: Path) -> None:
    model = save(_Half(), tmp_path / "model.pt2", torch.ones(2))
    assert identify(model).outputs[0].dtype == "bfloat16"
    with pytest.raises(BackendError, match="bfloat16"):
        Torch().fallback(model, {})
