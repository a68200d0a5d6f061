"""The rules of the house that no unit test would notice being broken."""

from __future__ import annotations

import ast
import importlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import trivet

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "trivet"
MODULES = sorted(SOURCE.rglob("*.py"))
HEAVY = {
    "numpy", "lmdb", "typer", "rich", "click", "onnxruntime", "openvino", "onnx", "torch", "jax",
    "tensorflow", "transformers", "redis", "pytest", "hypothesis", "asyncio", "multiprocessing",
    "zstandard", "http",
}  # fmt: skip
EXECUTING = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}


def run(program: str) -> str:
    """What a new process prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 20


def test_imports_follow_the_layers() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from importlinter.cli import lint_imports;"
            " sys.exit(lint_imports('pyproject.toml', no_cache=True))",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_importing_the_package_is_light_and_starts_nothing() -> None:
    loaded, threads = json.loads(
        run(
            "import sys; before = set(sys.modules)\n"
            "import trivet, json\n"
            "loaded = sorted({name.partition('.')[0] for name in set(sys.modules) - before})\n"
            "import threading; print(json.dumps([loaded, threading.active_count()]))"
        )
    )
    assert "trivet" in loaded
    assert set(loaded) & HEAVY == set()
    assert threads == 1


@pytest.mark.parametrize(
    "module",
    [
        "keys",
        "events",
        "entries",
        "codecs",
        "policies",
        "memory",
        "stores",
        "plans",
        "warm",
        "testing",
        "audit.runner",
    ],
)
def test_importing_a_layer_imports_no_framework(module: str) -> None:
    loaded = json.loads(
        run(f"import sys, json, trivet.{module}; print(json.dumps(sorted(sys.modules)))")
    )
    frameworks = HEAVY - {"asyncio", "multiprocessing", "lmdb", "zstandard", "http"}
    assert {name.partition(".")[0] for name in loaded} & frameworks == set()


def test_the_top_has_at_most_twenty_public_names_and_each_exists() -> None:
    assert 0 < len(trivet.__all__) <= 20
    assert sorted(set(trivet.__all__)) == sorted(trivet.__all__)
    for name in trivet.__all__:
        assert getattr(trivet, name) is not None


@pytest.mark.parametrize(
    "package", ["keys", "entries", "codecs", "policies", "memory", "stores", "testing"]
)
def test_every_exported_name_exists_and_says_what_it_is(package: str) -> None:
    module = importlib.import_module(f"trivet.{package}")
    assert module.__doc__
    for name in module.__all__:
        value = getattr(module, name)
        if getattr(value, "__module__", "").startswith("trivet."):
            assert value.__doc__, name


def test_files_are_of_a_size_to_read() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in MODULES}
    assert {str(path): count for path, count in lengths.items() if count > 600} == {}
    assert statistics.median(lengths.values()) < 200


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_says_what_it_is_and_can_not_run_stored_bytes(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {node.module or ""}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            # That one runs what it has just written itself, of comparisons and names.
            is_own = path == SOURCE / "values" / "watch.py"
            assert is_own or node.func.id not in {"eval", "exec"}, f"line {node.lineno}"
            names = set()
        else:
            continue
        assert not {name.partition(".")[0] for name in names} & EXECUTING, f"line {node.lineno}"


def test_the_kit_of_fakes_needs_neither_pytest_nor_hypothesis() -> None:
    program = (
        "import sys; sys.modules['pytest'] = sys.modules['hypothesis'] = None\n"
        "from trivet.testing import FakeClock, FaultyStore, MemoryStore, Recorder\n"
        "print(FakeClock(now=5).time(), MemoryStore().read(bytes(32)))"
    )
    assert run(program) == "5 None\n"
