"""Inductor's cache under ``trivet exec``, by PyTorch's own counters."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.support.guarded import Guarded, run, start

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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_three_workers_on_an_empty_cache_compile_once(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    workers = [Guarded(each, 800) for each in [start(tmp_path / "c", program) for _ in range(3)]]
    assert [each.out for each in workers] == ["right\n"] * 3
    assert sorted(map(counters, workers)) == [(0, 1), (1, 0), (1, 0)]


# Neither headers of PyTorch nor of Python: they take half a minute to compile.
EXTENSION = """
import os
import torch
from torch.utils.cpp_extension import load_inline

code = 'extern "C" int answer() { return 42; }'
load_inline("answers", code, is_python_module=False, no_implicit_headers=True)
(built,) = [each for each in torch.ops.loaded_libraries if each.endswith("answers.so")]
print(built, os.stat(built).st_mtime_ns)
"""


def test_an_extension_is_built_once_and_lies_where_pytorch_puts_it(tmp_path: Path) -> None:
    """Ninja goes by times and paths, which no copy keeps: restored, it would be built each time."""
    program = tmp_path / "program.py"
    program.write_text(EXTENSION)
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    said = [
        run(tmp_path / "c", program, XDG_CACHE_HOME=str(tmp_path / "home"), PATH=search).out
        for _ in range(2)
    ]
    assert said[0].startswith(str(tmp_path / "home" / "torch_extensions"))
    assert said[0] == said[1]
