"""Host facts: the CPU as programs see it, natively, masked and emulated."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from trivet.plans import cpuid, hwcap
from trivet.plans.host import HostFacts, _instruction_set, missing_features, read_host

_SCRIPT = """
import json, os, sys
from trivet.plans import cpuid
from trivet.plans.host import read_host
host = read_host(os.environ)
print(json.dumps({
    "facts": host.instruction_set, "unknown": host.instruction_set_unknown,
    "machine": host.machine, "libc": host.libc,
    "glibc": cpuid.decode(*cpuid._from_glibc()),
    "instruction": cpuid.decode(*cpuid._from_instruction()),
    "heavy": sorted({"numpy", "onnxruntime", "openvino"} & set(sys.modules)),
}))
"""


def facts_of_process(*prefix: str, **environment: str) -> dict[str, object]:
    result = subprocess.run(
        [*prefix, sys.executable, "-c", _SCRIPT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    facts = json.loads(result.stdout)
    assert isinstance(facts, dict)
    return facts


def emulated(cpu: str) -> dict[str, object]:
    qemu = shutil.which("qemu-x86_64")
    assert qemu is not None, "qemu-x86_64 is missing: install Debian's package qemu-user"
    return facts_of_process(qemu, "-cpu", cpu)


@pytest.fixture(scope="module")
def native() -> dict[str, object]:
    return facts_of_process()


def test_facts_are_taken_without_numpy_or_a_framework(native: dict[str, object]) -> None:
    assert native["heavy"] == []
    assert native["unknown"] == ""
    assert native["machine"] == os.uname().machine
    assert native["libc"] == os.confstr("CS_GNU_LIBC_VERSION").replace(" ", "-")  # type: ignore[union-attr]


def test_both_sources_of_cpuid_agree(native: dict[str, object]) -> None:
    assert native["glibc"] == native["instruction"] == native["facts"]


@pytest.mark.needs("qemu-user")
def test_emulated_nehalem_is_seen_as_nehalem() -> None:
    seen = emulated("Nehalem")
    assert seen["facts"] == [
        "cx16", "popcnt", "sse2", "sse3", "sse4_1", "sse4_2", "ssse3"
    ]  # fmt: skip
    assert seen["instruction"] == seen["facts"]


@pytest.mark.needs("qemu-user")
def test_emulated_haswell_is_seen_as_haswell() -> None:
    seen = emulated("Haswell-noTSX")
    assert seen["instruction"] == seen["facts"]
    features = set(seen["facts"])  # type: ignore[call-overload]
    assert {"avx", "avx2", "bmi2", "f16c", "fma", "lzcnt", "movbe"} <= features
    assert not any(name.startswith(("avx512", "amx", "sha")) for name in features)


def test_glibc_tunables_hide_nothing_from_us_as_they_hide_nothing_from_frameworks(
    native: dict[str, object],
) -> None:
    masked = facts_of_process(GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-SSE4_2,-BMI2")
    assert masked["facts"] == native["facts"]


def test_numpys_switch_hides_nothing_from_us(native: dict[str, object]) -> None:
    assert facts_of_process(NPY_DISABLE_CPU_FEATURES="AVX2 FMA3")["facts"] == native["facts"]


def test_without_glibcs_interface_the_instruction_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = cpuid.x86_features()

    def older_glibc() -> None:
        raise AttributeError("__x86_get_cpuid_feature_leaf")

    monkeypatch.setattr(cpuid, "_from_glibc", older_glibc)
    assert cpuid.x86_features() == expected


def test_features_that_cannot_be_read_are_unknown_not_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(address: int) -> None:
        raise OSError(13, "this system forbids executable memory")

    monkeypatch.setattr(cpuid, "_make_executable", forbidden)
    features, unknown = _instruction_set("linux", "x86_64", "glibc.cpu.hwcaps=-AVX2,probe")
    assert features == ()
    assert "forbids executable memory" in unknown


def test_other_systems_are_unknown() -> None:
    features, unknown = _instruction_set("darwin", "arm64", "")
    assert features == ()
    assert "darwin arm64" in unknown


def test_facts_hold_the_environment_they_were_given() -> None:
    given = {"ORT_X": "1"}
    facts = read_host(given)
    given["ORT_X"] = "2"
    assert facts.environment == {"ORT_X": "1"}
    assert isinstance(facts, HostFacts)


def test_facts_take_milliseconds() -> None:
    best = float("inf")
    for _ in range(5):
        _instruction_set.cache_clear()
        start = time.perf_counter()
        read_host(os.environ)
        best = min(best, time.perf_counter() - start)
    assert best < 0.02  # measured: 0.0005


AVX512 = (7, 0, "ebx"), 16
WORDS = {
    (leaf, subleaf, register): 0
    for leaf, subleaf in ((1, 0), (7, 0), (7, 1), (0x80000001, 0), (0x24, 0))
    for register in ("eax", "ebx", "ecx", "edx")
}


def with_bits(*bits: tuple[tuple[int, int, str], int]) -> dict[tuple[int, int, str], int]:
    words = dict(WORDS)
    for word, bit in bits:
        words[word] |= 1 << bit
    return words


@pytest.mark.parametrize(
    ("bit", "name", "state"),
    [
        (((1, 0, "ecx"), 28), "avx", 0b100),
        (AVX512, "avx512f", 0b11100000),
        (((7, 0, "ecx"), 11), "avx512_vnni", 0b11100000),
        (((7, 1, "eax"), 5), "avx512_bf16", 0b11100000),
        (((7, 1, "eax"), 4), "avx_vnni", 0b100),
        (((7, 0, "edx"), 24), "amx_tile", 0b11 << 17),
        (((7, 0, "edx"), 25), "amx_int8", 0b11 << 17),
        (((7, 0, "edx"), 22), "amx_bf16", 0b11 << 17),
    ],
)
def test_a_feature_counts_only_where_the_system_saves_its_registers(
    bit: tuple[tuple[int, int, str], int], name: str, state: int
) -> None:
    words = with_bits(bit)
    assert cpuid.decode(words, state) == (name, "sse2")
    assert cpuid.decode(words, state & (state - 1)) == ("sse2",)
    assert cpuid.decode(words, 0) == ("sse2",)


def test_a_feature_without_a_name_counts_by_its_position() -> None:
    assert "cpuid_7_1_eax_15" in cpuid.decode(with_bits(((7, 1, "eax"), 15)), 0)


def test_system_bits_do_not_count() -> None:
    hypervisor, tsx = ((1, 0, "ecx"), 31), ((7, 0, "ebx"), 11)
    assert cpuid.decode(with_bits(hypervisor, tsx), 0) == ("sse2",)


def test_no_bit_is_both_a_feature_and_neutral() -> None:
    for word, named in cpuid._FEATURES.items():
        assert not named.keys() & cpuid._NEUTRAL[word]


def test_a_later_avx10_contains_the_earlier() -> None:
    words = with_bits(((7, 1, "edx"), 19))
    words[0x24, 0, "ebx"] = 2
    features = cpuid.decode(words, 0b11100000)
    assert features == ("avx10_1", "avx10_2", "sse2")
    words[0x24, 0, "ebx"] = 1
    assert missing_features(cpuid.decode(words, 0b11100000), features) == ()


def test_arm_features_have_the_kernels_names_and_the_vector_length() -> None:
    bits = 1 << 1 | 1 << 2 | 1 << 22  # asimd, evtstrm (neutral), sve
    assert hwcap.decode(bits, 1 << 14, 32) == ("asimd", "bf16", "sve", "sve_bytes_32")
    assert hwcap.decode(bits, 1 << 60, 16) == ("asimd", "hwcap2_60", "sve", "sve_bytes_16")


def test_a_wider_machine_has_what_a_narrower_plan_needs_and_not_the_reverse() -> None:
    narrow, wide = ("avx", "avx2"), ("avx", "avx2", "avx512f", "avx512bw")
    assert missing_features(wide, wide) == ()
    assert missing_features(wide, narrow) == ("avx512bw", "avx512f")
    assert missing_features(narrow, wide) == ()
