"""Inductor's cache under ``trivet exec``, by PyTorch's own counters."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.support.guarded import Guarded, run, start, start_command

PROGRAM = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Softmax(-1), torch.nn.Linear(32, 4))
x = torch.linspace(-1, 1, 64).reshape(4, 16)
with torch.no_grad():
    error = (torch.compile(model)(x) - model(x)).abs().max()
print("right" if error < 1e-5 else f"wrong by {error}")
"""

# Each is a program's own code with a part that is edited, X, and what compiled code then says.
CUSTOM = """
import torch

@torch.library.custom_op("toy::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.X) * 2

@scale.register_fake
def _(x):
    return torch.empty_like(x, dtype=torch.X)
"""

# The older way, of which no registry of Python knows.
LIBRARY = """
import torch
LIBRARY = torch.library.Library("toy", "DEF")
LIBRARY.define("scale(Tensor x) -> Tensor")

def real(x):
    return x.to(torch.X) * 2

def meta(x):
    return torch.empty_like(x, dtype=torch.X)

LIBRARY.impl("scale", real, "CPU")
LIBRARY.impl("scale", meta, "Meta")
scale = torch.ops.toy.scale.default
"""

HELPED = CUSTOM.replace("torch.X", "helper.KIND").replace("import torch", "import helper, torch")
BACKWARD = """
import torch
torch.library.register_autograd("toy::scale", lambda ctx, grad: grad * X)
"""
MUTATES = """
import torch

@torch.library.custom_op("toy::fill", mutates_args=X)
def fill(x: torch.Tensor) -> None:
    if X:
        x.fill_(7)

@fill.register_fake
def _(x):
    pass
"""
LOWERING = """
import torch
from torch._inductor.lowering import lowerings, register_lowering

@register_lowering(torch.ops.toy.scale.default)
def _(x):
    return lowerings[torch.ops.aten.mul.Tensor](x, X)
"""
DECOMPOSITION = """
import torch
from torch._inductor.decomposition import register_decomposition

@register_decomposition([torch.ops.toy.scale.default])
def _(x):
    return x * X
"""
BACKEND = """
import torch
from torch._inductor.compile_fx import compile_fx
from torch._inductor.decomposition import decompositions

def backend(graph, inputs):
    added = {**decompositions, torch.ops.toy.scale.default: lambda x: x * X}
    return compile_fx(graph, inputs, decompositions=added)
"""

WRAPPED = """
import torch
from torch.utils._pytree import tree_map

class Scaled(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Scaled(parts["inner"])

    @classmethod
    def __torch_dispatch__(cls, f, types, args=(), kwargs=None):
        given = tree_map(lambda each: each.inner if isinstance(each, Scaled) else each, args)
        return Scaled(f(*given, **(kwargs or {})) * X)
"""
SAYS_WRAPPED = """
import torch, more
x = more.Scaled(torch.ones(8))
print(torch.compile(lambda x: x + 1)(x).inner[0].item())
"""
SAYS_KIND = """
import torch, operators
x = torch.arange(8, dtype=torch.float32)
print(torch.compile(lambda x: operators.scale(x) + 1)(x).dtype)
"""
SAYS_FIRST = """
import torch, operators, more
x = torch.ones(8)
print(torch.compile(lambda x: operators.scale(x) + 1)(x)[0].item())
"""
SAYS_GRADIENT = """
import torch, operators, more
x = torch.ones(8, requires_grad=True)
torch.compile(lambda x: operators.scale(x).sum())(x).backward()
print(x.grad[0].item())
"""
SAYS_FILLED = """
import torch, operators

@torch.compile
def f(x):
    y = x * 1
    operators.fill(y)
    return y + 1

print(f(torch.zeros(8))[0].item())
"""
FLOAT = LIBRARY.replace("torch.X", "torch.float32")

KINDS = {"float32": "torch.float32", "int32": "torch.int32"}
FIRST = {"3.0": "4.0", "5.0": "6.0"}
# The program, its other files, the edited file and its text, and for two values of X what is said.
EDITED = {
    "custom_op": (SAYS_KIND, {}, "operators", CUSTOM, KINDS),
    "Library": (SAYS_KIND, {}, "operators", LIBRARY, KINDS),
    "helper": (SAYS_KIND, {"operators": HELPED}, "helper", "import torch\nKIND = torch.X", KINDS),
    "backward": (
        *(SAYS_GRADIENT, {"operators": FLOAT}, "more", BACKWARD),
        {"3.0": "3.0", "5.0": "5.0"},
    ),
    "mutates_args": (SAYS_FILLED, {}, "operators", MUTATES, {"()": "1.0", '("x",)': "8.0"}),
    "lowering": (SAYS_FIRST, {"operators": FLOAT}, "more", LOWERING, FIRST),
    "decomposition": (SAYS_FIRST, {"operators": FLOAT}, "more", DECOMPOSITION, FIRST),
    "tensor": (SAYS_WRAPPED, {}, "more", WRAPPED, {"3.0": "6.0", "5.0": "10.0"}),
    "backend": (
        SAYS_FIRST.replace("+ 1)", "+ 1, backend=more.backend)"),
        *({"operators": FLOAT}, "more", BACKEND, FIRST),
    ),
}


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


FORKS = """
import os
child = os.fork()
if child == 0:
    open(os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "childs"), "w").close()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.timeout(900)
def test_what_the_parent_compiled_is_not_counted_again_by_a_forked_child(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + FORKS)
    assert counters(run(tmp_path / "c", program)) == (0, 1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", EDITED)
def test_what_a_program_adds_to_pytorch_is_another_folder_when_it_is_edited(
    case: str, tmp_path: Path
) -> None:
    """PyTorch takes the plan that was made with what was there before the edit."""
    program, others, edited, text, says = EDITED[case]
    (tmp_path / "program.py").write_text(program)
    for name, content in others.items():
        (tmp_path / f"{name}.py").write_text(content)
    first, second = says
    said = []
    for value in (first, second, first):
        (tmp_path / f"{edited}.py").write_text(text.replace("X", value))
        guarded = run(tmp_path / "c", tmp_path / "program.py")
        said.append((guarded.out.strip(), guarded.effects["torch"]["restored"]))
    assert said == [(says[first], "empty"), (says[second], "empty"), (says[first], "hit")]


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


TYPED = (
    LIBRARY.replace("torch.X", "torch.int32 if INT else torch.float32")
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
        (tmp_path / f"{module}.py").write_text(CUSTOM.replace("X", dtype))
    (tmp_path / "program.py").write_text(USES_OPERATORS)
    (tmp_path / "main.py").write_text(EACH)
    said = [
        run(tmp_path / "c", tmp_path / "main.py", PYTHONPATH=str(tmp_path)).out for _ in range(2)
    ]
    assert said == ["torch.float32 right\ntorch.int32 right\n"] * 2


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
