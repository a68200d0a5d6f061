"""What the hook takes for the files that operators come from, in one process with real PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trivet.plans.folders

HOOK = Path(trivet.plans.folders.__file__).parent / "hook"
_TWICE = """
import torch
LIBRARY = torch.library.Library("toy", "FRAGMENT")
LIBRARY.define("NAME(Tensor x) -> Tensor")
"""
_FILES = {
    # What is registered, and what that takes from elsewhere.
    "helped.py": """
import torch
import helper
@torch.library.custom_op("toy::helped", mutates_args=())
def helped(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
@helped.register_fake
def _(x):
    return helper.like(x)
""",
    "helper.py": "from package import (\n  # how large\n  SIZE as N,\n)\n"
    "def like(x): return x.new_empty(N)",
    "package/__init__.py": "from .below.sizes import SIZE",
    "package/below/sizes.py": "from .. import numbers\nSIZE = numbers.SIZE",
    "package/numbers.py": "SIZE = 3",
    "lazy.py": _TWICE.replace("NAME", "lazy")
    + """
def real(x):
    from parts import late
    return late.double(x)
LIBRARY.impl("lazy", real, "CPU")
""",
    "parts/late.py": "from .below import double",
    "parts/below.py": "import parts.deep.more as m\ndef double(x): return m.double(x)",
    "parts/deep/more.py": "def double(x): return x * 2",
    # Loaded as well, and nothing is taken from there.
    "parts/__init__.py": "from . import others",
    "parts/others.py": "import unrelated",
    "package/others.py": "",
    "package/below/__init__.py": "",
    "parts/deep/__init__.py": "",
    "unrelated.py": "from helped import *",
    "wrapped.py": _TWICE.replace("NAME", "wrapped")
    + """
import functools
import wrapping, made
LIBRARY.impl("wrapped", wrapping.logged(made.real), "CPU")
""",
    "wrapping.py": """
import functools
def logged(f):
    @functools.wraps(f)
    def g(*given):
        return f(*given)
    return g
""",
    "made.py": "def real(x): return x * 2",
    "partial.py": _TWICE.replace("NAME", "partial")
    + """
import functools
from importlib import import_module
IMPL = functools.partial(import_module("bound_" + "by_name").real, 2)
LIBRARY.impl(op_name="partial", fn=IMPL, dispatch_key="CPU")
""",
    "bound_by_name.py": "def real(n, x): return x * n",
    "called.py": _TWICE.replace("NAME", "called")
    + """
from importlib import import_module
LIBRARY.impl("called", import_module("call" + "able").Times(2), "CPU")
""",
    "callable.py": "class Times:\n    def __init__(self, n): self.n = n\n"
    "    def __call__(self, x): return x * self.n",
    "listed.py": _TWICE.replace("NAME", "listed")
    + """
from importlib import import_module
TABLE = {"twice": import_module("in_a_" + "table").real}
def real(x): return TABLE["twice"](x)
LIBRARY.impl("listed", real, "CPU")
""",
    "in_a_table.py": "def real(x): return x * 2",
    "differentiated.py": """
import torch
from importlib import import_module
m = import_module("back" + "ward")
torch.library.register_autograd("toy::lazy", m.backward, setup_context=m.context)
""",
    "backward.py": "def backward(ctx, g): return g\ndef context(ctx, inputs, output): pass",
    "lowered.py": """
import torch
from torch._inductor.lowering import lowerings, register_lowering
@register_lowering(torch.ops.toy.lazy.default)
def _(x): return lowerings[torch.ops.aten.mul.Tensor](x, 2)
""",
    "decomposed.py": """
import torch
from torch._inductor.decomposition import register_decomposition
@register_decomposition([torch.ops.toy.partial.default])
def _(x): return x * 2
""",
    "table.py": """
import torch
from torch._decomp import register_decomposition
@register_decomposition([torch.ops.toy.called.default])
def _(x): return x * 2
""",
    "tensors.py": """
import torch
from importlib import import_module
m = import_module("dispatch" + "ing")
class Wrapped(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, f, types, args=(), kwargs=None):
        return m.double(f(*args))
""",
    "dispatching.py": "def double(x): return x * 2",
    "nowhere.py": _TWICE.replace("NAME", "nowhere")
    + """
space = {}
exec("def real(x): return x", space)
LIBRARY.impl("nowhere", space["real"], "CPU")
""",
    "backend.py": "def backend(graph, inputs): return graph.forward",
}
UNUSED = {
    "parts/__init__.py", "parts/others.py", "package/others.py", "package/below/__init__.py",
    "parts/deep/__init__.py", "unrelated.py",
}  # fmt: skip
_MAIN = """
import importlib, json, os, sys
sys.path[:0] = [HOOK, os.getcwd()]
import torch, torch._inductor.lowering, torch._inductor.decomposition, torch._dynamo
import trivet_exec_watch as watch, trivet_exec_operators as operators
watch.watch_operators(torch.library)
told = {"bare": sorted(operators.operator_files())}
for name in ("helped", "lazy", "wrapped", "partial", "called", "listed", "differentiated",
             "lowered", "decomposed", "table", "tensors", "parts.others", "package.others",
             "parts.late"):
    importlib.import_module(name)
found = operators.operator_files()
told["files"] = sorted(os.path.relpath(each) for each in found)
told["again"] = operators.operator_files() == found
watch.watch_backends(torch._dynamo.backends.registry)
torch._dynamo.backends.registry.lookup_backend(importlib.import_module("backend").backend)
told["with backend"] = sorted(map(os.path.relpath, operators.operator_files() - found))
told["unknown before"] = operators.unknown()
importlib.import_module("nowhere")
operators.operator_files()
told["unknown"] = operators.unknown()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("operators")
    for name, text in {**_FILES, "main.py": _MAIN.replace("HOOK", repr(str(HOOK)))}.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=folder,
        env={**os.environ, "TRIVET_EXEC_RUN": str(folder / "run")},
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_program_without_operators_of_its_own_depends_on_no_file(told: dict[str, object]) -> None:
    assert told["bare"] == []


@pytest.mark.parametrize("file", [*sorted({*_FILES} - {"backend.py", "nowhere.py"})])
def test_every_file_that_an_operator_may_take_something_from_counts(
    file: str, told: dict[str, object]
) -> None:
    is_found = file in told["files"]  # type: ignore[operator]
    assert is_found is (file not in UNUSED)


def test_a_backend_counts(told: dict[str, object]) -> None:
    """It may bring decompositions, of which PyTorch's key holds nothing."""
    assert told["with backend"] == ["backend.py"]


def test_nothing_is_looked_for_twice(told: dict[str, object]) -> None:
    assert told["again"] is True


def test_an_operator_in_no_file_is_said(told: dict[str, object]) -> None:
    assert told["unknown before"] == ""
    assert told["unknown"] == "operators are implemented by real, in no file"
