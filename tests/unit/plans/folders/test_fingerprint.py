"""Every field of a folder's key: what differs makes another key, what doesn't count makes none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.fake_tensorrt.install import show_gpus
from tests.support.installed import that_does

from trivet.errors import BackendError
from trivet.keys import Key
from trivet.plans.environment import is_read, neutral_reason, significant
from trivet.plans.facts import machine
from trivet.plans.folders import KNOWN, CacheFolder, Interpreter
from trivet.plans.folders.fingerprint import digest_inputs, folder_key
from trivet.plans.folders.frameworks import CUDA, JAX, NEURON, TORCH, TRITON, VLLM
from trivet.plans.host import HostFacts
from trivet.plans.installed import Package

HOST = HostFacts(
    system="linux",
    machine="x86_64",
    instruction_set=("avx2", "fma"),
    libc="glibc-2.36",
    environment={"PATH": ""},
)
TOY = msgspec.structs.replace(
    VLLM,
    name="toy",
    packages=(
        Package(module="toyframe", distributions=("toyframe",), libraries=("l*.so",), extra="toy"),
    ),
    compilers={"CXX": ("toyc",)},
)


class Toy:
    """A framework on disk, and its key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = that_does(folder / "site", "toyframe", "")
        self.framework = TOY
        self.host = HOST
        self.inputs: dict[str, str] = {}
        self.salts: dict[str, str] = {}
        self.arguments: list[str] = ["serve", "model"]
        self.python = Interpreter(
            executable=str(folder / "python"),
            version="3.11.2 [GCC 12]",
            tag="cpython-311",
            path=[str(self.site)],
            prefix=str(folder),
            base=str(folder),
        )

    def key(self) -> Key:
        return folder_key(
            self.framework,
            self.python,
            self.host,
            self.inputs,
            self.salts,
            arguments=self.arguments,
            cwd=str(self.folder),
        )

    def of_host(self, **facts: Any) -> None:
        self.host = msgspec.structs.replace(self.host, **facts)

    def of_python(self, **facts: Any) -> None:
        self.python = msgspec.structs.replace(self.python, **facts)

    def of_framework(self, **facts: Any) -> None:
        self.framework = msgspec.structs.replace(self.framework, **facts)

    def sees(self, *gpus: str, driver: str = "580") -> None:
        machine._NVIDIA = show_gpus(self.folder, *gpus, driver=driver)

    def compiles_by(self, text: str) -> None:
        program = self.folder / "bin" / "toyc"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho {text}\n")
        program.chmod(0o755)
        self.of_host(environment={**self.host.environment, "PATH": str(program.parent)})

    def sets(self, **variables: str) -> None:
        self.of_host(environment={**self.host.environment, **variables})


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    monkeypatch.setenv("FAKE_TENSORRT_PROC", "")
    monkeypatch.setattr(machine, "_NVIDIA", tmp_path / "none")
    monkeypatch.setattr(machine, "_AMD", tmp_path / "none")
    return Toy(tmp_path)


DIFFERS: dict[str, tuple[str, Callable[[Toy], object]]] = {
    "name": ("framework", lambda toy: toy.of_framework(name="other")),
    "library": (
        "packages.toyframe.libraries.libcore.so",
        lambda toy: (toy.site / "toyframe" / "libcore.so").write_bytes(b"edoc"),
    ),
    "record": (
        "packages.toyframe.record",
        lambda toy: (toy.site / "toyframe-1.0.dist-info" / "RECORD").write_text(
            "toyframe/more.py,sha256=1,1\n"
        ),
    ),
    "version": (
        "packages.toyframe.version",
        lambda toy: (toy.site / "toyframe-1.0.dist-info").rename(
            toy.site / "toyframe-1.1.dist-info"
        ),
    ),
    "python": ("python.version", lambda toy: toy.of_python(version="3.11.3 [GCC 12]")),
    "implementation": ("python.tag", lambda toy: toy.of_python(tag="pypy311")),
    "system": ("host.system", lambda toy: toy.of_host(system="darwin")),
    "machine": ("host.machine", lambda toy: toy.of_host(machine="aarch64")),
    "instruction set": (
        "host.instruction_set",
        lambda toy: toy.of_host(instruction_set=("avx2", "avx512f", "fma")),
    ),
    "libc": ("host.libc", lambda toy: toy.of_host(libc="glibc-2.41")),
    "graphics": ("graphics.nvidia models", lambda toy: toy.sees("NVIDIA H200")),
    "compiler": ("compilers.CXX", lambda toy: toy.compiles_by("12.2")),
    "variable": ("environment.VLLM_NEW_SWITCH", lambda toy: toy.sets(VLLM_NEW_SWITCH="1")),
    "empty variable": ("environment.VLLM_NEW_SWITCH", lambda toy: toy.sets(VLLM_NEW_SWITCH="")),
    "setting": ("settings.TOY", lambda toy: toy.of_framework(settings={"TOY": "1"})),
    "input": ("inputs.0/x", lambda toy: toy.inputs.update({"0/x": "00"})),
    "salt": ("salts.x", lambda toy: toy.salts.update(x="1")),
    "argument": ("arguments.", lambda toy: toy.arguments.append("other")),
    "option": ("arguments.--spec-tokens", lambda toy: toy.arguments.extend(["--spec-tokens", "7"])),
}


@pytest.mark.parametrize("what", DIFFERS)
def test_what_differs_makes_another_key(what: str, toy: Toy) -> None:
    field, change = DIFFERS[what]
    before = toy.key()
    change(toy)
    after = toy.key()
    assert after.digest != before.digest
    assert field in [each.name for each in after.diff(before)]


def test_no_field_is_left_untried(toy: Toy) -> None:
    tried = {field.partition(".")[0] for field, _ in DIFFERS.values()}
    assert {*toy.key()} - tried == {"order_of_arguments"}  # see test_arguments.py


@pytest.mark.parametrize("what", ["driver", "model", "number"])
def test_another_graphics_processor_makes_another_key(what: str, toy: Toy) -> None:
    toy.sees("NVIDIA H200")
    before = toy.key()
    toy.sees(
        *["NVIDIA H100" if what == "model" else "NVIDIA H200"] * (2 if what == "number" else 1),
        driver="590" if what == "driver" else "580",
    )
    assert toy.key().digest != before.digest


ALIKE = ("NVIDIA H200", "NVIDIA H200")
CHOICES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


@pytest.mark.parametrize("variable", CHOICES)
def test_which_of_alike_processors_is_seen_makes_no_other_key(variable: str, toy: Toy) -> None:
    """Else workers that are pinned to one each would all compile for themselves."""
    toy.sees(*ALIKE)
    found = {}
    for value in ("0", "1", "GPU-1a0b1c2d", "0,1", "1,0"):
        toy.sets(**{variable: value})
        found[value] = toy.key()
    assert found["0"] == found["1"] == found["GPU-1a0b1c2d"]
    assert found["0,1"] == found["1,0"] != found["0"]
    assert found["0"]["graphics"][variable] == 1


@pytest.mark.parametrize("variable", CHOICES)
@pytest.mark.parametrize("value", ["", "2", "0,0", "-1", "all", "GPU-", "MIG-1", "GPU-9a0b1c2d"])
def test_a_choice_that_is_not_understood_is_in_the_key(value: str, variable: str, toy: Toy) -> None:
    toy.sees(*ALIKE)
    toy.sets(**{variable: value})
    assert toy.key()["environment"][variable] == value


@pytest.mark.parametrize("why", ["several models", "slices", "none"])
def test_a_choice_among_what_may_differ_is_in_the_key(why: str, toy: Toy) -> None:
    if why != "none":
        toy.sees("NVIDIA H200", "NVIDIA L4" if why == "several models" else "NVIDIA H200")
    if why == "slices":
        (machine._NVIDIA / "capabilities" / "gpu0" / "mig" / "gi1").mkdir(parents=True)
    toy.sets(CUDA_VISIBLE_DEVICES="0")
    before = toy.key()
    toy.sets(CUDA_VISIBLE_DEVICES="1")
    assert toy.key().digest != before.digest


def test_another_content_of_the_compiler_makes_another_key(toy: Toy) -> None:
    toy.compiles_by("12.2")
    before = toy.key()
    toy.compiles_by("12.2 # patched")
    differing = [each.name for each in toy.key().diff(before)]
    assert "compilers.CXX.programs.driver" in differing


NEUTRAL: dict[str, Callable[[Toy], object]] = {
    "a variable that nobody reads": lambda toy: toy.sets(HOSTNAME="pod-7"),
    "where the cache lies": lambda toy: toy.sets(VLLM_CACHE_ROOT="/elsewhere"),
    "an unset search path": lambda toy: toy.sets(LD_LIBRARY_PATH=""),
    "where Python lies": lambda toy: toy.of_python(executable="/x", prefix="/y", base="/z"),
    "a time stamp": lambda toy: os.utime(toy.site / "toyframe" / "libcore.so", (1, 1)),
    "where it is served": lambda toy: toy.arguments.extend(["--port", "8001"]),
}


@pytest.mark.parametrize("what", NEUTRAL)
def test_what_does_not_count_makes_no_other_key(what: str, toy: Toy) -> None:
    before = toy.key()
    NEUTRAL[what](toy)
    assert toy.key() == before


def test_another_folder_makes_no_other_key(toy: Toy, tmp_path: Path) -> None:
    other = Toy(tmp_path / "moved")
    assert other.key() == toy.key()


_TELL = """
import sys
from pathlib import Path
from tests.unit.plans.folders.test_fingerprint import Toy, machine
machine._NVIDIA = machine._AMD = Path("/none")
toy = Toy(Path(sys.argv[1]))
toy.sets(VLLM_B="1", VLLM_A="2", TORCH_C="3")
toy.salts.update({each: each for each in {"x", "y", "z"}})
print(toy.key().digest.hex())
"""


def test_the_key_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Whatever the seed of Python's hashes."""
    told = {
        subprocess.run(
            [sys.executable, "-c", _TELL, tmp_path / seed],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


def test_without_the_instruction_set_there_is_no_key(toy: Toy) -> None:
    toy.of_host(instruction_set_unknown="the CPU's features can't be read")
    with pytest.raises(BackendError, match="can't be read"):
        toy.key()


def test_a_package_that_is_not_there_is_another_key_than_one_that_is(toy: Toy) -> None:
    absent = Package(module="nosuchthing", distributions=("n",), libraries=(), extra="toy")
    toy.of_framework(packages=(*TOY.packages, absent))
    assert toy.key()["packages"]["nosuchthing"] is None


def test_inputs_count_by_content_wherever_they_lie(tmp_path: Path) -> None:
    told = []
    for name, content in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "below" / "kernel.py").write_text(content)
        told.append(digest_inputs([tmp_path / name]))
    assert told[0] == told[1] != told[2]


# -- environment, by framework ---------------------------------------------------------------------

IN_KEY = [
    (VLLM, "VLLM_PP_LAYER_PARTITION"),
    (VLLM, "VLLM_USE_V1"),
    (VLLM, "VLLM_SWITCH_OF_NEXT_YEAR"),
    (VLLM, "TORCHINDUCTOR_MAX_AUTOTUNE"),
    (VLLM, "TRITON_DEFAULT_FP_FUSION"),
    (VLLM, "WORLD_SIZE"),
    (TORCH, "OMP_NUM_THREADS"),
    (TORCH, "CPLUS_INCLUDE_PATH"),
    (TORCH, "LD_PRELOAD"),
    (TORCH, "RANK"),
    (TORCH, "LOCAL_RANK"),
    (TORCH, "WORLD_SIZE"),
    (TORCH, "LOCAL_WORLD_SIZE"),
    (JAX, "XLA_FLAGS"),
    (JAX, "JAX_PLATFORMS"),
    (JAX, "JAX_ENABLE_X64"),
    (NEURON, "NEURON_CC_FLAGS"),
    (NEURON, "XLA_USE_BF16"),
    (NEURON, "LD_LIBRARY_PATH"),
    (CUDA, "CUDA_FORCE_PTX_JIT"),
    (CUDA, "LD_LIBRARY_PATH"),
    (TRITON, "TRITON_PTXAS_PATH"),
]
NOT_IN_KEY = [
    (VLLM, "VLLM_CACHE_ROOT"),
    (VLLM, "VLLM_HOST_IP"),
    (VLLM, "VLLM_PORT"),
    (VLLM, "VLLM_API_KEY"),
    (VLLM, "VLLM_NIXL_SIDE_CHANNEL_HOST"),
    (VLLM, "VLLM_DP_MASTER_IP"),
    (VLLM, "VLLM_LOGGING_LEVEL"),
    (TORCH, "TORCHINDUCTOR_CACHE_DIR"),
    (TORCH, "TORCHELASTIC_RUN_ID"),
    (TORCH, "MASTER_ADDR"),
    (TORCH, "MASTER_PORT"),
    (JAX, "JAX_COMPILATION_CACHE_DIR"),
    (JAX, "JAX_COORDINATOR_ADDRESS"),
    (NEURON, "NEURON_COMPILE_CACHE_URL"),
    (NEURON, "NEURON_RT_ROOT_COMM_ID"),
    (CUDA, "CUDA_CACHE_PATH"),
    (CUDA, "CUDA_CACHE_MAXSIZE"),
    (TRITON, "TRITON_CACHE_DIR"),
]


def named(case: object) -> str:
    return case.name if isinstance(case, CacheFolder) else str(case)


@pytest.mark.parametrize(("framework", "variable"), IN_KEY, ids=named)
def test_a_variable_that_decides_is_in_the_key(framework: CacheFolder, variable: str) -> None:
    assert significant({variable: "1"}, framework.environment) == {variable: "1"}


@pytest.mark.parametrize(("framework", "variable"), NOT_IN_KEY, ids=named)
def test_a_variable_that_decides_nothing_is_not_in_the_key(
    framework: CacheFolder, variable: str
) -> None:
    assert significant({variable: "1"}, framework.environment) == {}


@pytest.mark.parametrize("framework", KNOWN, ids=named)
def test_what_leads_to_the_cache_is_read_and_neutral(framework: CacheFolder) -> None:
    """And what the guard sets, counts, unless it is as the guard sets it."""
    for name in framework.variables:
        assert is_read(name, framework.environment)
        assert neutral_reason(name, framework.environment)
    for name in framework.settings:
        assert is_read(name, framework.environment)
        assert neutral_reason(name, framework.environment) is None


@pytest.mark.parametrize("framework", KNOWN, ids=named)
def test_every_neutral_variable_has_a_reason_and_would_be_read(framework: CacheFolder) -> None:
    for name, reason in framework.environment.neutral.items():
        assert len(reason) > 5
        assert is_read(name, framework.environment), f"{name} is not read, so needs no rule"
