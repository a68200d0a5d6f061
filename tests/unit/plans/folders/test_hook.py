"""The hook knows, without Trivet, what the tables of frameworks say."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import trivet.plans.folders
from trivet.plans.folders import KNOWN

HOOK = Path(trivet.plans.folders.__file__).parent / "hook" / "sitecustomize.py"


def test_every_framework_is_looked_out_for() -> None:
    (names,) = re.findall(r"^FRAMEWORKS = \((.*)\)$", HOOK.read_text(), re.MULTILINE)
    assert {each.strip(' "') for each in names.split(",")} == {
        module for framework in KNOWN for module in framework.modules
    }
    assert all(framework.modules for framework in KNOWN)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("TRIVET_EXEC_RUN", "/tmp/run")
    spec = importlib.util.spec_from_file_location("loaded", HOOK.parent / "trivet_exec_loaded.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/usr/src/app/release-2/operators.py", True),  # where images put programs
        ("/usr/local/src/operators.so", True),
        ("/home/me/operators.so", True),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", False),
        ("/usr/local/cuda-13/lib64/libcudart.so", False),
        (sys.executable, False),
    ],
)
def test_what_a_program_brings_itself_is_told_from_what_is_installed(
    path: str, own: bool, loaded: ModuleType
) -> None:
    assert loaded.is_own(path) is own


def function(path: Path | str, **module: str) -> Callable[[], None]:
    """One whose code says that it is in ``path``."""
    made: dict[str, Any] = dict(module)
    exec(compile("def made(): pass", str(path), "exec"), made)
    found: Callable[[], None] = made["made"]
    return found


class Holds:
    def __init__(self, held: Callable[[], None]) -> None:
        self.held = held

    def __call__(self) -> None:
        self.held()


def closes_over(inner: object) -> Callable[[], object]:
    return lambda: inner


WRAPS: dict[str, Callable[[Callable[[], None]], Any]] = {
    "itself": lambda inner: inner,
    "partial": functools.partial,
    "decorator": lambda inner: functools.wraps(inner)(function(__file__)),
    "closure": closes_over,
    "object": Holds,
    "object in a closure": lambda inner: closes_over(Holds(inner)),
    "class in a closure": lambda inner: closes_over(type("C", (), {"f": staticmethod(inner)})),
}


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("TRIVET_EXEC_RUN", "/tmp/run")
    monkeypatch.syspath_prepend(str(HOOK.parent))
    yield importlib.import_module("trivet_exec_operators")
    for name in [each for each in sys.modules if each.startswith("trivet_exec_")]:
        del sys.modules[name]


@pytest.mark.parametrize("how", WRAPS)
def test_an_operators_code_is_found_behind_what_wraps_it(
    how: str, operators: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "operators.py"
    path.touch()
    implementation = WRAPS[how](function(path))
    operators.note(implementation)
    assert str(path) in operators.operator_files()


def test_an_operator_that_is_made_of_something_else_later_is_looked_at_anew(
    operators: ModuleType, tmp_path: Path
) -> None:
    """As where a function is defined once more, and PyTorch's wrapper of that name leads to it."""
    paths = [tmp_path / f"{name}.py" for name in ("first", "second")]
    for path in paths:
        path.touch()
    inner: list[object] = []
    wrapper = function(functools.__file__, __name__="torch.wrappers", __file__=functools.__file__)
    wrapper.__dict__["calls"] = inner
    inner.append(print)
    operators.note(wrapper)
    assert operators.operator_files() == set()
    for path in paths:
        inner[:] = [function(path)]
        operators.look_anew()
        assert str(path) in operators.operator_files()


def test_what_was_in_a_table_before_is_looked_at_anew(
    operators: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lowered.py"
    path.touch()
    lowering = Holds(print)
    table = ModuleType("torch._inductor.decomposition")
    table.decompositions = {"toy": closes_over(lowering)}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, table.__name__, table)
    operators.operator_files()
    lowering.held = function(path)
    operators.look_anew()
    assert str(path) in operators.operator_files()


def test_code_that_is_in_no_file_is_told_from_what_a_module_makes(operators: ModuleType) -> None:
    made = function("<string>", __name__="module", __file__=__file__)
    operators.note(made)
    assert __file__ in operators.operator_files()
    assert not operators.unknown()
    typed = function("<stdin>", __name__="__main__")
    operators.note(typed)
    operators.operator_files()
    assert "in no file" in operators.unknown()
