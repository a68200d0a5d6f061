"""Options of the IREE backend: what is refused, what the compiler is told, what enters the key."""

from __future__ import annotations

from typing import Any

import pytest

from trivet.errors import BackendError
from trivet.keys import Key
from trivet.plans.backends import Iree
from trivet.plans.backends.iree_options import check_options, compiler_flags
from trivet.plans.environment import is_read
from trivet.plans.facts.iree import ENVIRONMENT
from trivet.plans.host import HostFacts


def host(*features: str, machine: str = "x86_64", **environment: str) -> HostFacts:
    return HostFacts(
        system="linux",
        machine=machine,
        instruction_set=features or ("avx2", "sse4_1"),
        libc="glibc-2.36",
        environment=environment,
    )


def key(backend: Iree, where: HostFacts | None = None) -> Key:
    return Key("test/1", backend.key_fields(where or host()))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"device": "cuda"}, "device is one of"),
    ({"cpu": ""}, "cpu is 'host'"),
    ({"cpu": "haswell --more"}, "cpu is 'host'"),
    ({"flags": "--iree-opt-level=O3"}, "sequence of strings"),
    ({"flags": [1]}, "sequence of strings"),
    ({"flags": ["O3"]}, "not a flag of iree-compile"),
    ({"flags": ["--iree-opt-level=O2", "--iree-opt-level=O3"]}, "given twice"),
    ({"flags": ["--iree-hal-target-device=cuda"]}, "choose one with cpu"),
    ({"flags": ["--iree-llvmcpu-target-cpu-features=+avx2"]}, "choose one with cpu"),
    ({"flags": ["--iree-llvmcpu-target-triple=aarch64-linux"]}, "choose one with cpu"),
    ({"flags": ["--iree-hal-dump-executable-files-to=/tmp"]}, "files beside a plan"),
    ({"flags": ["--iree-parameter-import=weights.irpa"]}, "files beside a plan"),
    ({"flags": ["--iree-preprocessing-pdl-spec-filename=x"]}, "files beside a plan"),
    ({"flags": ["--iree-llvmcpu-system-linker-path=ld"]}, "files beside a plan"),
    ({"flags": ["--iree-codegen-tuning-spec-path=x"]}, "files beside a plan"),
    ({"flags": ["--iree-plugin=x"]}, "files beside a plan"),
    ({"flags": ["--compile-to=vm"]}, "files beside a plan"),
]


@pytest.mark.parametrize(("arguments", "text"), REFUSED, ids=lambda each: str(each)[:60])
def test_what_cannot_be_honoured_is_refused_by_the_constructor(
    arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(BackendError, match=text):
        Iree(**arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"cpu": "generic"},
        {"cpu": "haswell"},
        {"flags": ["--iree-opt-level=O3"]},
        {"flags": ["--iree-opt-level=O2"]},
        {"flags": ["--iree-input-demote-f64-to-f32=true"]},
    ],
    ids=str,
)
def test_every_option_that_changes_the_plan_changes_the_key(options: dict[str, Any]) -> None:
    assert key(Iree(**options)) != key(Iree())


def test_the_device_is_not_the_plans() -> None:
    assert key(Iree(device="local-sync")) == key(Iree())


def test_host_is_told_as_the_list_of_features_that_the_key_names() -> None:
    """So that what is compiled is what the key says, whatever CPU the compiler runs on."""
    options = check_options(cpu="host", device="local-task", flags=())
    flags = compiler_flags(options, host("sse4_1", "avx512_vnni", "bmi1", "cpuid_7_0_ecx_9"))
    assert "--iree-llvmcpu-target-cpu=generic" in flags
    assert "--iree-llvmcpu-target-cpu-features=+avx512vnni,+bmi,+sse4.1" in flags
    assert key(Iree(), host("avx2")) != key(Iree(), host("avx2", "avx512f"))


def test_generic_code_has_one_key_on_every_cpu() -> None:
    assert key(Iree(cpu="generic"), host("avx2")) == key(Iree(cpu="generic"), host("sse3"))


def test_doubles_stay_doubles_unless_the_caller_says_otherwise() -> None:
    options = check_options(cpu="generic", device="local-task", flags=())
    assert "--iree-input-demote-f64-to-f32=false" in compiler_flags(options, host())
    given = ("--iree-input-demote-f64-to-f32=true",)
    options = check_options(cpu="generic", device="local-task", flags=given)
    assert [each for each in compiler_flags(options, host()) if "f64" in each] == [*given]


# Found in libIREECompiler.so and in the packages' Python, 3.13.
READ = """
IREE_COMPILER_DEBUG_CONSTEVAL IREE_COMPILER_TASK_COUNT IREE_DEFAULT_DEVICE
IREE_LLVM_EMBEDDED_LINKER_PATH IREE_LLVM_SYSTEM_LINKER_PATH IREE_LLVM_WASM_LINKER_PATH
IREE_LOAD_PLUGINS IREE_PRESERVE_DYLIB_TEMP_FILES IREE_PY_RUNTIME IREE_PY_RUNTIME_FLAGS
IREE_SAVE_TEMPS IREE_TOOL_PATH LLVM_DISABLE_SYMBOLIZATION LLVM_ENABLE_SYMBOLIZER_MARKUP
LLVM_OVERRIDE_PRODUCER LLVM_SYMBOLIZER_PATH
"""


def test_every_variable_that_was_found_is_classified() -> None:
    assert [name for name in READ.split() if not is_read(name, ENVIRONMENT)] == []


@pytest.mark.parametrize("name", ["IREE_OF_NEXT_YEAR", "IREE_PY_RUNTIME", "LLVM_X", "LD_PRELOAD"])
def test_a_variable_that_is_read_enters_the_key_heard_of_or_not(name: str) -> None:
    assert key(Iree(), host(**{name: "1"})) != key(Iree())


@pytest.mark.parametrize("name", ["IREE_SAVE_TEMPS", "IREE_DEFAULT_DEVICE", "HOME", "TMPDIR"])
def test_a_variable_that_changes_no_plan_does_not(name: str) -> None:
    assert key(Iree(), host(**{name: "1"})) == key(Iree())


def test_lint_finds_flags_that_the_installed_compiler_does_not_know() -> None:
    assert Iree(flags=["--iree-opt-level=O3"]).lint() == []
    (finding,) = Iree(flags=["--iree-optimise-harder=9"]).lint()
    assert (finding.code, finding.severity) == ("unknown-flag", "error")
