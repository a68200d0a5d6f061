"""What a start that finds its plan imports. Every module costs such a start a part of its time."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from tests.support import onnx_models

_LIST = "\nimport sys; print(*sys.modules)"
_DEPENDENCIES = "import pathlib, blake3, lmdb, msgspec, numpy, onnxruntime, typing, xxhash" + _LIST
_LOAD = """
import sys
from trivet import Cache
from trivet.plans import Plans
from trivet.plans.backends import OnnxRuntime
plan = Plans(Cache.open(sys.argv[2], strict=True), OnnxRuntime()).load(sys.argv[1])
assert plan.source == sys.argv[3], plan.report
"""

# The standard library beyond what the dependencies import themselves. To add a name here, measure
# it: `python -X importtime`.
ALLOWED = {"_heapq", "atexit", "errno", "fcntl", "heapq", "importlib", "mmap", "threading"}

# Parts for compiling, for looking around, for another machine, and for other faces.
FOR_LATER = {
    "trivet.aio",
    "trivet.cache.stored",
    "trivet.cli",
    "trivet.plans.backends.onnxruntime_plan",
    "trivet.plans.backends.openvino",
    "trivet.plans.graph.onnx_graph",
    "trivet.plans.graph.onnx_model",
    "trivet.plans.graph.openvino_ir",
    "trivet.plans.hwcap",
    "trivet.plans.padding_check",
    "trivet.stores.host.contents",
    "trivet.stores.host.rebuild",
    "trivet.stores.host.upkeep",
    "trivet.stores.host.verify",
    "trivet.testing",
}


def _modules(program: str, *args: object) -> set[str]:
    """The modules that a new process has loaded in the end."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules of a process that found its plan, and knew the model and the framework."""
    folder = tmp_path_factory.mktemp("imports")
    model = onnx_models.save(onnx_models.mlp(), folder / "model.onnx")
    for source in ("compiled", "cache", "cache"):
        loaded = _modules(_LOAD + _LIST, model, folder / "cache", source)
    return loaded


def test_a_warm_start_imports_no_more_of_the_standard_library_than_it_needs(
    warm: set[str],
) -> None:
    more = {name.partition(".")[0] for name in warm - _modules(_DEPENDENCIES)}
    assert (more & sys.stdlib_module_names) - ALLOWED == set()


def test_a_warm_start_imports_no_part_that_it_has_no_use_for(warm: set[str]) -> None:
    assert "trivet.plans.plans" in warm
    assert warm & FOR_LATER == set()


@pytest.mark.parametrize("module", sorted(FOR_LATER))
def test_every_part_named_here_exists(module: str) -> None:
    """One that was renamed would be missed above without a word."""
    assert importlib.util.find_spec(module) is not None
