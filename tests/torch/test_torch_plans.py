"""Plans of PyTorch programs: shared by weights, bound to what they depend on, and verified."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.support.cli import trivet
from tests.support.torch_programs import WIDTH, Dense, dense, save

from trivet.cache import Artifact, Cache, Hit, Miss
from trivet.errors import BackendError, CorruptEntry, ShapeError
from trivet.plans import Plans, Shapes, Source
from trivet.plans.backend import FailureKind
from trivet.plans.backends import Torch
from trivet.plans.backends.child import CompilerDied
from trivet.plans.backends.compiling import compile_elsewhere
from trivet.plans.backends.torch_package import LIBRARY, METADATA
from trivet.plans.errors import ModelChanged, PlanFailed
from trivet.plans.graph import identify

X = np.linspace(-1, 1, 5 * WIDTH, dtype=np.float32).reshape(5, WIDTH)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A cache folder that holds the plan of a model, and the model."""
    folder = tmp_path_factory.mktemp("stored")
    model = dense(folder / "model.pt2")
    with Cache.open(folder / "cache") as cache:
        assert Plans(cache, Torch(threads=2)).load(model).source is Source.COMPILED
    return folder / "cache", model


@pytest.fixture
def cache(stored: tuple[Path, Path], tmp_path: Path) -> Iterator[Cache]:
    """A copy of that cache."""
    shutil.copytree(stored[0], tmp_path / "cache")
    with Cache.open(tmp_path / "cache") as cache:
        yield cache


def plans(cache: Cache, **options: Any) -> Plans:
    return Plans(cache, Torch(threads=2), on_failure="refuse", **options)


def expected(seed: int = 0, x: np.ndarray[Any, Any] = X, **changes: Any) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        found = Dense(seed, **changes).eval()(torch.from_numpy(x))
    return found["y"].numpy()  # type: ignore[no-any-return]


def close(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> bool:
    return bool(np.allclose(found, wanted, rtol=1e-4, atol=1e-5))


def only_plan(cache: Cache, model: Path) -> Artifact:
    (found,) = plans(cache).find(model)
    assert isinstance(found.found, Hit)
    return found.found.value


# -- weights -------------------------------------------------------------------------------------


def test_versions_that_differ_in_weights_share_a_plan_and_keep_their_answers(
    cache: Cache, stored: tuple[Path, Path], tmp_path: Path
) -> None:
    tuned = dense(tmp_path / "tuned.pt2", seed=3, fresh=False, scale=-7.0)
    first, second = plans(cache).load(stored[1]), plans(cache).load(tuned)
    assert (first.source, second.source) == (Source.CACHE, Source.CACHE)
    assert first.loaded.key == second.loaded.key
    for _ in range(2):  # one after the other: neither has taken the weights of the other
        assert close(first.run({"x": X})["y"], expected())
        assert close(second.run({"x": X})["y"], expected(3, fresh=False, scale=-7.0))
    assert not close(expected(), expected(3, fresh=False, scale=-7.0))


def test_a_plan_holds_no_weights_and_the_key_says_so(
    cache: Cache, stored: tuple[Path, Path]
) -> None:
    artifact = only_plan(cache, stored[1])
    assert artifact.key["graph"]["weights"] == "external"  # type: ignore[index, call-overload]
    held = b"".join(each.read_bytes() for each in artifact.verify().rglob("*") if each.is_file())
    for tensor in Dense().state_dict().values():
        alike = bool((tensor == tensor.flatten()[0]).all())  # zeros and ones stand everywhere
        assert alike or tensor.numpy().tobytes() not in held


def test_a_canary_stands_for_the_weights_that_it_was_made_with(
    cache: Cache, stored: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = only_plan(cache, stored[1]).verify()
    kept = [each.name for each in folder.iterdir() if each.name.startswith("canary")]
    assert kept == [f"canary.{identify(stored[1]).weights.hex()}"]
    tuned = dense(tmp_path / "tuned.pt2", seed=3, fresh=False)
    for model in (stored[1], tuned):
        assert plans(cache, canary="always").load(model).source is Source.CACHE


def test_weights_that_are_not_those_that_were_identified_are_not_bound(
    stored: tuple[Path, Path], cache: Cache, tmp_path: Path
) -> None:
    artifact = only_plan(cache, stored[1])
    backend = Torch(threads=2)
    executable = backend.load(artifact.verify() / "plan", artifact.descriptor.detail)
    with pytest.raises(BackendError, match="no weights yet"):
        executable.run({"x": X})
    other = dense(tmp_path / "other.pt2", seed=1)
    with pytest.raises(ModelChanged):
        backend.bind(executable, other, identify(stored[1]))
    shutil.copy(stored[1], tmp_path / "cut.pt2")
    os.truncate(tmp_path / "cut.pt2", 2000)
    with pytest.raises(ModelChanged):
        backend.bind(executable, tmp_path / "cut.pt2", identify(stored[1]))
    backend.bind(executable, other, identify(other))
    assert close(executable.run({"x": X})["y"], expected(1))


def test_a_compiler_that_bakes_weights_in_is_found_out(tmp_path: Path) -> None:
    model = dense(tmp_path / "model.pt2", fresh=False)
    options = {"settings": {}, "threads": 2, "operators": [], "custom_ops": []}
    with pytest.raises(BackendError, match="weights are part of the code"):
        compile_elsewhere("tests.torch.baking", model, {}, tmp_path, {"x": X}, options)


# -- keys ----------------------------------------------------------------------------------------


def test_another_graph_is_a_miss(cache: Cache, stored: tuple[Path, Path], tmp_path: Path) -> None:
    module = Dense()
    module.last = torch.nn.Sequential(module.last, torch.nn.Tanh())  # type: ignore[assignment]
    dim = torch.export.Dim("N", min=1, max=64)
    other = save(module, tmp_path / "other.pt2", torch.ones(4, WIDTH), dynamic_shapes=({0: dim},))
    (found,) = plans(cache).find(other)
    assert isinstance(found.found, Miss)
    (nearest,) = plans(cache).why(found.bound)
    assert any("structure" in str(each) for each in nearest.differences)


def test_a_lower_vector_width_is_another_key_in_another_process(
    cache: Cache, stored: tuple[Path, Path]
) -> None:
    program = (
        "import sys; from pathlib import Path; from trivet.cache import Cache\n"
        "from trivet.plans import Plans; from trivet.plans.backends import Torch\n"
        "with Cache.open(sys.argv[1]) as cache:\n"
        "    ((_, key),) = Plans(cache, Torch(threads=2)).keys(Path(sys.argv[2]))\n"
        "    print(key.digest.hex(), 'torch' in sys.modules)"
    )

    def keyed(**environment: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program, str(stored[0]), str(stored[1])],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    ((_, mine),) = plans(cache).keys(stored[1])
    assert keyed() == f"{mine.digest.hex()} False\n"
    assert keyed(ATEN_CPU_CAPABILITY="default") != keyed()


# -- what is stored ------------------------------------------------------------------------------


def test_a_plan_for_a_wider_instruction_set_is_never_loaded(
    cache: Cache, stored: tuple[Path, Path], tmp_path: Path
) -> None:
    artifact = only_plan(cache, stored[1])
    detail, backend = artifact.descriptor.detail, Torch(threads=2)
    folder = shutil.copytree(artifact.verify() / "plan", tmp_path / "plan")
    (folder / METADATA).chmod(0o600)
    said = json.loads((folder / METADATA).read_bytes())
    for wider in ("AVX512 AVX512_VNNI AMX_TILE", "AVX1024"):
        (folder / METADATA).write_text(json.dumps({**said, "AOTI_CPU_ISA": wider}))
        with pytest.raises(BackendError, match=r"lacks|runs with"):
            backend.load(folder, detail)
    (folder / METADATA).write_text(json.dumps(said))
    features = [*detail["instruction_set"], "avx1024"]  # type: ignore[misc]
    with pytest.raises(BackendError, match="lacks: avx1024"):
        backend.load(folder, {**detail, "instruction_set": features})
    (folder / METADATA).write_text("{}")
    with pytest.raises(CorruptEntry):
        backend.load(folder, detail)


def test_a_process_that_pytorch_holds_to_less_loads_no_wider_plan(
    cache: Cache, stored: tuple[Path, Path], tmp_path: Path
) -> None:
    artifact = only_plan(cache, stored[1])
    program = (
        "import json, sys; from pathlib import Path\n"
        "from trivet.plans.backends import Torch\n"
        "try: Torch().load(Path(sys.argv[1]), json.load(sys.stdin))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(artifact.verify() / "plan")],
        input=json.dumps(msgspec.to_builtins(artifact.descriptor.detail)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path),
             "ATEN_CPU_CAPABILITY": "default"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("BackendError the plan is for AVX")


def test_flipped_bits_are_set_aside_and_compiled_again(
    cache: Cache, stored: tuple[Path, Path]
) -> None:
    library = only_plan(cache, stored[1]).verify() / "plan" / LIBRARY
    library.chmod(0o600)
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 4
    library.write_bytes(content)
    healed = plans(cache).load(stored[1])
    assert (healed.source, healed.loaded.reason) == (Source.COMPILED, "corrupt")
    assert close(healed.run({"x": X})["y"], expected())
    assert plans(cache).load(stored[1]).source is Source.CACHE


# -- processes -----------------------------------------------------------------------------------


def serve(folder: Path, model: Path, *custom_ops: Path, size: int = 5) -> dict[str, Any]:
    """The answer of a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.torch_answers", str(folder), str(model), str(size),
         *map(str, custom_ops)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_new_process_loads_it_without_dynamo_and_inductor(stored: tuple[Path, Path]) -> None:
    answer = serve(*stored)
    assert answer["source"] == "cache"
    assert not {"torch._dynamo", "torch._inductor"} & set(answer["imported"])
    assert "torch.nn" in answer["imported"]
    assert close(np.array(answer["outputs"]["y"]), expected())


@pytest.mark.timeout(900)
def test_a_host_without_a_compiler_finds_a_plan_that_any_compiler_may_have_made(
    stored: tuple[Path, Path], tmp_path: Path
) -> None:
    program = (
        "import sys; import numpy as np; from trivet.cache import Cache\n"
        "from trivet.plans import Plans; from trivet.plans.backends import Torch\n"
        "with Cache.open(sys.argv[1]) as cache:\n"
        "    backend = Torch(threads=2, any_compiler=True)\n"
        "    plan = Plans(cache, backend, on_failure='refuse').load(sys.argv[2])\n"
        "    plan.run({'x': np.zeros((5, 16), np.float32)})\n"
        "    print(plan.source)"
    )

    def served(model: Path, path: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "cache"), str(model)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PATH": path},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    (tmp_path / "empty").mkdir()
    without = served(stored[1], str(tmp_path / "empty"))
    assert "there is no C++ compiler" in without.stderr  # and nothing is recorded
    found = [served(stored[1], each) for each in (os.environ["PATH"], str(tmp_path / "empty"))]
    assert [each.stdout for each in found] == ["compiled\n", "cache\n"], found


# -- shapes --------------------------------------------------------------------------------------


def test_sizes_within_the_exported_bounds_run_and_others_are_refused(
    cache: Cache, stored: tuple[Path, Path]
) -> None:
    plan = plans(cache).load(stored[1])
    assert plan.source is Source.CACHE
    for size in (1, 2, 64):
        x = np.random.default_rng(size).standard_normal((size, WIDTH), np.float32)
        assert close(plan.run({"x": x})["y"], expected(x=x))
    for shape in ((65, WIDTH), (0, WIDTH), (5, WIDTH + 1)):
        with pytest.raises(ShapeError):
            plan.run({"x": np.zeros(shape, np.float32)})


def test_a_bucket_is_compiled_for_its_size_and_cut_back(
    cache: Cache, stored: tuple[Path, Path]
) -> None:
    plan = plans(cache).open(stored[1], Shapes(f"x=N{{8,16}}x{WIDTH}"))
    found = plan.run({"x": X})["y"]
    assert plan.source is Source.COMPILED
    assert plan.loaded.executable.inputs[0].shape == (8, WIDTH)
    assert close(found, expected())


# -- custom operators ----------------------------------------------------------------------------

_OPERATOR = """
import torch
from torch import Tensor

@torch.library.custom_op("trivet_test::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor

@scaled.register_fake
def _(x, factor):
    return torch.empty_like(x)
"""
_CHANGES = {
    "implementation": ("return x * factor", "return x * factor + 1"),
    "meta outputs": ("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.int32)"),
    "schema": ("factor: float)", "factor: float = 2.0)"),
    "what it writes": ("mutates_args=()", "mutates_args=('x',)"),
}
_EXPORTED = """
import sys, torch
sys.path[:0] = [sys.argv[1]]
import operators

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.ops.trivet_test.scaled(x, 3.0))

batch = torch.export.Dim("N", min=1, max=64)
program = torch.export.export(Model(), (torch.ones(4, 16),), dynamic_shapes=({0: batch},))
torch.export.save(program, sys.argv[2])
"""


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file that registers an operator, and a model that calls it."""
    folder = tmp_path_factory.mktemp("operators")
    (folder / "operators.py").write_text(_OPERATOR)
    model = folder / "model.pt2"
    subprocess.run([sys.executable, "-c", _EXPORTED, str(folder), str(model)], check=True)
    return folder / "operators.py", model


@pytest.mark.parametrize("change", _CHANGES)
def test_a_changed_operator_is_another_key(
    operators: tuple[Path, Path], tmp_path: Path, change: str
) -> None:
    old, new = _CHANGES[change]
    (tmp_path / "operators.py").write_text(_OPERATOR.replace(old, new))
    assert (tmp_path / "operators.py").read_text() != _OPERATOR
    with Cache.open(tmp_path / "cache") as cache:
        keys = {
            Plans(cache, Torch(threads=2, custom_ops=paths)).keys(operators[1])[0][1].digest
            for paths in ([], [operators[0]], [tmp_path / "operators.py"])
        }
    assert len(keys) == 3


def test_a_model_with_a_custom_operator_is_served_by_new_processes(
    operators: tuple[Path, Path], tmp_path: Path
) -> None:
    answers = [serve(tmp_path / "cache", operators[1], operators[0]) for _ in range(2)]
    assert [each["source"] for each in answers] == ["compiled", "cache"]
    for each in answers:
        assert close(np.array(each["outputs"]["output"]), np.maximum(3 * X, 0))


def test_an_operator_that_nobody_registers_is_named(
    operators: tuple[Path, Path], tmp_path: Path
) -> None:
    with Cache.open(tmp_path / "cache") as cache, pytest.raises(PlanFailed, match="custom_ops="):
        plans(cache).load(operators[1])


# -- what can't be kept --------------------------------------------------------------------------


class _Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


class _Writing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)


@pytest.mark.parametrize("module", [_Counting(), _Writing()])
def test_programs_that_change_their_state_or_inputs_are_refused(
    tmp_path: Path, module: torch.nn.Module
) -> None:
    model = save(module, tmp_path / "model.pt2", torch.ones(2))
    with Cache.open(tmp_path / "cache") as cache, pytest.raises(PlanFailed, match="mutation"):
        plans(cache).load(model)


def test_a_killed_compiler_is_no_verdict_on_the_model(
    stored: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "killer"
    compiler.write_text("#!/bin/sh\nkill -9 $PPID\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    (tmp_path / "staging").mkdir()
    backend = Torch(threads=2)
    with pytest.raises(CompilerDied, match="SIGKILL") as caught:
        backend.compile(stored[1], identify(stored[1]), {}, tmp_path / "staging")
    assert backend.classify(caught.value) is FailureKind.TRANSIENT
    assert list((tmp_path / "staging").iterdir()) == []


def test_the_gate_tests_each_version_with_its_own_weights(
    stored: tuple[Path, Path], tmp_path: Path
) -> None:
    shutil.copytree(stored[0], tmp_path / "cache")
    dense(tmp_path / "tuned.pt2", seed=3, fresh=False, scale=-7.0)
    file = tmp_path / "plan.toml"
    paths = (stored[1], tmp_path / "tuned.pt2")
    file.write_text("".join(f"[[model]]\npath = '{each}'\nthreads = 2\n" for each in paths))
    done = trivet(tmp_path / "cache", "gate", file, "--json")
    assert done.code == 0, done.out
    first, tuned = (each["variants"][0] for each in done.json()["targets"])
    assert first["result"] == tuned["result"] == "cache"
    assert first["key"] == tuned["key"]
    assert "weights" in tuned["phases"]
    same = [each["against"] for each in tuned["checks"] if each["result"] == "same"]
    assert same == ["uncompiled"]
