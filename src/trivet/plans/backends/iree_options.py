"""The options of the IREE backend: what is refused, and the compiler's flags as applied."""

from __future__ import annotations

import mmap
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from trivet.errors import BackendError
from trivet.plans.backend import Finding, Severity
from trivet.plans.host import HostFacts

DEVICES = ("local-task", "local-sync")
HOST, GENERIC = "host", "generic"

# LLVM's names of features, where they are not those of `trivet.plans.cpuid`. Features that neither
# list names are not used: code for fewer is right. AMX is left out, since a process has to ask the
# kernel before its first tile; so are AVX10 and APX, which no machine here has.
_LLVM = {
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "pclmulqdq": "pclmul",
    "bmi1": "bmi",
    "sha_ni": "sha",
    "rdrand": "rdrnd",
    "avx_vnni": "avxvnni",
    "avx_ifma": "avxifma",
    "avx_vnni_int8": "avxvnniint8",
    "avx_vnni_int16": "avxvnniint16",
    "avx_ne_convert": "avxneconvert",
    **{
        f"avx512_{name}": f"avx512{name}"
        for name in ("ifma", "vbmi", "vbmi2", "vnni", "bitalg", "vpopcntdq", "bf16", "fp16")
    },
    **{
        name: name
        for name in (
            *("sse2", "sse3", "ssse3", "sse4a", "cx16", "movbe", "popcnt", "aes", "adx", "lzcnt"),
            *("avx", "avx2", "fma", "f16c", "fma4", "xop", "tbm", "bmi2", "rdseed", "gfni"),
            *("vaes", "vpclmulqdq", "sha512", "sm3", "sm4"),
            *("avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"),
        )
    },
}

# Without it IREE computes in 32 bits what the model has in 64, and fails where it reads it.
_DEFAULTS = {"--iree-input-demote-f64-to-f32": "false"}

_FLAG = re.compile(r"(--[a-z][a-z0-9-]*)(?:=(.*))?", re.DOTALL)
_CPU = re.compile(r"[a-z0-9][a-z0-9._-]*")
_TARGET = re.compile(
    r"--iree-hal-(?:target|local|default)-.*|--iree-llvmcpu-target-(?:cpu|triple|abi|float-abi|data).*"
)
_FILES = re.compile(
    r"--(?:iree-)?.*(?:dump|path|file|folder|dir|spec|parameter|export|splat|listing|plugin|linker"
    r"|statistics|trace|print|output|sanitize|instrument).*|--compile-.*|--o"
)


class IreeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller chose, checked."""

    cpu: str
    device: str
    flags: tuple[str, ...]

    @property
    def portable(self) -> bool:
        """Whether the code runs on every CPU of the architecture."""
        return self.cpu == GENERIC


def check_options(*, cpu: str, device: str, flags: Sequence[str]) -> IreeOptions:
    """Raises `BackendError` for what can't be honoured."""
    if device not in DEVICES:
        raise BackendError(
            f"device is one of {list(DEVICES)}, got {device!r}",
            hint="plans are kept for the CPU only",
        )
    if not isinstance(cpu, str) or not _CPU.fullmatch(cpu):
        raise BackendError(
            f"cpu is 'host', 'generic' or LLVM's name of one, such as 'haswell', got {cpu!r}"
        )
    if isinstance(flags, str) or not all(isinstance(each, str) for each in flags):
        raise BackendError("flags is a sequence of strings, such as ['--iree-opt-level=O3']")
    for flag in flags:
        _check_flag(flag)
    names = [name_of(each) for each in flags]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BackendError(f"{twice[0]} is given twice")
    return IreeOptions(cpu=cpu, device=device, flags=tuple(flags))


def name_of(flag: str) -> str:
    """A flag without its value."""
    return flag.partition("=")[0]


def _check_flag(flag: str) -> None:
    if not _FLAG.fullmatch(flag):
        raise BackendError(
            f"{flag!r} is not a flag of iree-compile", hint="flags read like --iree-opt-level=O3"
        )
    name = name_of(flag)
    if _TARGET.fullmatch(name):
        raise BackendError(
            f"{name} can't be set: the key names the target", hint="choose one with cpu=..."
        )
    if _FILES.fullmatch(name):
        raise BackendError(
            f"{name} can't be set: files beside a plan can change unnoticed, and what is written "
            "beside it is not kept"
        )


def target(options: IreeOptions, host: HostFacts) -> tuple[str, tuple[str, ...]]:
    """CPU and features as the compiler is told them.

    ``host`` becomes the list of features that the key names, so that what is compiled is what the
    key says, whatever CPU the compiler itself sees. On other architectures than x86-64 LLVM finds
    them by itself; such plans are bound to the whole instruction set as well.
    """
    if options.cpu != HOST or host.machine != "x86_64":
        return options.cpu, ()
    return GENERIC, tuple(sorted(f"+{_LLVM[x]}" for x in host.instruction_set if x in _LLVM))


def compiler_flags(options: IreeOptions, host: HostFacts) -> tuple[str, ...]:
    """Every flag that is given to the compiler, in order. What is not among them is its default."""
    cpu, features = target(options, host)
    given = {name_of(each) for each in options.flags}
    return (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        f"--iree-llvmcpu-target-cpu={cpu}",
        *((f"--iree-llvmcpu-target-cpu-features={','.join(features)}",) if features else ()),
        *(f"{name}={value}" for name, value in _DEFAULTS.items() if name not in given),
        *options.flags,
    )


def lint_options(options: IreeOptions, libraries: Sequence[Path]) -> list[Finding]:
    """Flags whose names occur nowhere in ``libraries``: the compiler would refuse them."""
    left = {name_of(each): name_of(each).lstrip("-").encode() for each in options.flags}
    for path in libraries if left else ():
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            left = {name: needle for name, needle in left.items() if text.find(needle) < 0}
    return [
        Finding(
            severity=Severity.ERROR,
            code="unknown-flag",
            message=f"{name} does not occur in the installed IREE; it would be refused",
            hint="check the spelling against iree-compile --help",
        )
        for name in sorted(left)
        if libraries
    ]
