"""Facts about this machine that a plan may depend on, taken without importing a framework."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping

import msgspec

from trivet.plans.cpuid import x86_features


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """This machine, as far as plans care.

    Attributes:
        system: ``"linux"``. machine: ``"x86_64"``.
        instruction_set: sorted CPU features that the operating system lets programs use, from
            CPUID (so that an emulated CPU is seen as what it emulates), never from the model name.
        libc: such as ``"glibc-2.36"``.
        environment: the process environment, whole; backends pick and classify.
        instruction_set_unknown: why the features could not be read; empty when they were. Plans
            that depend on them can't be kept then.
    """

    system: str
    machine: str
    instruction_set: tuple[str, ...]
    libc: str
    environment: Mapping[str, str]
    instruction_set_unknown: str = ""


def read_host(environment: Mapping[str, str]) -> HostFacts:
    """This machine's facts. Under a millisecond; CPU features are read once per process.

    Never raises: what can't be read is marked as unknown.
    """
    uname = os.uname()
    # A 32-bit interpreter runs on a 64-bit kernel and loads other libraries.
    machine = uname.machine if sys.maxsize > 2**32 else f"{uname.machine}-32bit"
    tunables = environment.get("GLIBC_TUNABLES", "")
    features, unknown = _instruction_set(uname.sysname.lower(), machine, tunables)
    return HostFacts(
        system=uname.sysname.lower(),
        machine=machine,
        instruction_set=features,
        libc=_libc(),
        environment=dict(environment),
        instruction_set_unknown=unknown,
    )


def missing_features(required: tuple[str, ...], live: tuple[str, ...]) -> tuple[str, ...]:
    """The features that are ``required`` and not in ``live``, sorted."""
    return tuple(sorted(set(required) - set(live)))


@functools.lru_cache(maxsize=8)
def _instruction_set(system: str, machine: str, tunables: str) -> tuple[tuple[str, ...], str]:
    """Features, and why they are unknown."""
    try:
        if system == "linux" and machine == "x86_64":
            return x86_features(tunables), ""
        if system == "linux" and machine == "aarch64":
            from trivet.plans.hwcap import arm_features  # which an x86 start has no use for

            return arm_features(), ""
    except OSError as error:
        return (), f"the CPU's features can't be read: {error.strerror or error}"
    return (), f"reading the CPU's features is not supported on {system} {machine}"


@functools.cache
def _libc() -> str:
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        name = None
    return name.replace(" ", "-") if name else "unknown"
