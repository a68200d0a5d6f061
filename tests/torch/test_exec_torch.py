"""Inductor's cache under ``trivet exec``, by PyTorch's own counters."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.guarded import Guarded, run, start_command

PROGRAM = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Softmax(-1), torch.nn.Linear(32, 4))
x = torch.linspace(-1, 1, 64).reshape(4, 16)
with torch.no_grad():
    error = (torch.compile(model)(x) - model(x)).abs().max()
print("right" if error < 1e-5 else f"wrong by {error}")
"""

OPERATORS = """
import torch

@torch.library.custom_op("toy::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.DTYPE) * 2

@scale.register_fake
def _(x):
    return torch.empty_like(x, dtype=torch.DTYPE)
"""

# The older way, of which no registry of Python knows.
LIBRARY = """
import torch

library = torch.library.Library("toy", "DEF")
library.define("scale(Tensor x) -> Tensor")

def real(x):
    return x.to(torch.DTYPE) * 2

def meta(x):
    return torch.empty_like(x, dtype=torch.DTYPE)

library.impl("scale", real, "CPU")
library.impl("scale", meta, "Meta")
scale = torch.ops.toy.scale.default
"""

USES_OPERATORS = """
import torch
import operators
x = torch.arange(8, dtype=torch.float32)
def f(x):
    return operators.scale(x) + 1
torch._dynamo.reset()  # as programs do between models
found = torch.compile(f)(x)
print(found.dtype, "right" if torch.equal(found, f(x)) else "wrong")
"""


def counters(guarded: Guarded) -> tuple[int, int]:
    counted = guarded.effects["torch"]["counters"]
    return counted["hits"], counted["misses"]


@pytest.mark.timeout(900)
def test_the_second_start_compiles_nothing_and_another_instruction_set_sees_nothing(
    tmp_path: Path,
) -> None:
    """PyTorch hands plans for AVX-512 to processes that have AVX2, and the other way round."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    first, second = (run(tmp_path / "c", program) for _ in range(2))
    assert (first.out, second.out) == ("right\n", "right\n")
    assert counters(first) == (0, 1)
    assert counters(second) == (1, 0)
    other = run(tmp_path / "c", program, ATEN_CPU_CAPABILITY="default")
    assert other.effects["torch"]["restored"] == "empty"
    assert counters(other) == (0, 1)
    assert other.out == "right\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("source", [OPERATORS, LIBRARY], ids=["custom_op", "Library"])
def test_an_edited_custom_operator_is_another_folder(source: str, tmp_path: Path) -> None:
    """PyTorch takes the plan that was made for the operator before the edit."""
    program, operators = tmp_path / "program.py", tmp_path / "operators.py"
    program.write_text(USES_OPERATORS)
    said = []
    for dtype in ("float32", "int32", "float32"):
        operators.write_text(source.replace("DTYPE", dtype))
        guarded = run(tmp_path / "c", program)
        said.append((guarded.out, guarded.effects["torch"]["restored"]))
    assert said == [
        ("torch.float32 right\n", "empty"),
        ("torch.int32 right\n", "empty"),
        ("torch.float32 right\n", "hit"),
    ]


TYPED = (
    LIBRARY.replace("torch.DTYPE", "torch.int32 if INT else torch.float32")
    + """
x = torch.arange(8, dtype=torch.float32)
def f(x):
    return scale(x) + 1
found = torch.compile(f)(x)
print(found.dtype, "right" if torch.equal(found, f(x)) else "wrong")
"""
)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_operator_that_is_in_no_file_is_never_taken_for_another(tmp_path: Path) -> None:
    """As those that are typed into a notebook."""
    said = []
    for number in (0, 1):
        code = TYPED.replace("INT", str(number))
        process = start_command(tmp_path / "c", [sys.executable, "-c", code])
        guarded = Guarded(process, 280)
        said.append((guarded.out, guarded.effects["torch"]["restored"]))
        assert "in no file" in guarded.effects["torch"]["not_kept"]
    assert said == [("torch.float32 right\n", "empty"), ("torch.int32 right\n", "empty")]


EACH = """
import subprocess, sys
for module in ("one", "two"):
    program = f"import {module}, sys; sys.modules['operators'] = {module}; import program"
    subprocess.run([sys.executable, "-c", program], check=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_processes_of_one_run_whose_operators_differ_share_no_plans(tmp_path: Path) -> None:
    for module, dtype in (("one", "float32"), ("two", "int32")):
        (tmp_path / f"{module}.py").write_text(OPERATORS.replace("DTYPE", dtype))
    (tmp_path / "program.py").write_text(USES_OPERATORS)
    (tmp_path / "main.py").write_text(EACH)
    said = [
        run(tmp_path / "c", tmp_path / "main.py", PYTHONPATH=str(tmp_path)).out for _ in range(2)
    ]
    assert said == ["torch.float32 right\ntorch.int32 right\n"] * 2
