"""Facts about this machine that a plan may depend on, taken without importing a framework."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """This machine, as far as plans care.

    Attributes:
        system: ``"linux"``. machine: ``"x86_64"``.
        instruction_set: sorted CPU features that the operating system lets programs use, from
            CPUID (so that an emulated CPU is seen as what it emulates), never from the model name.
        libc: such as ``"glibc-2.36"``.
        environment: the process environment, whole; backends pick and classify.
    """

    system: str
    machine: str
    instruction_set: tuple[str, ...]
    libc: str
    environment: Mapping[str, str]


def read_host(environment: Mapping[str, str]) -> HostFacts:
    """This machine's facts; milliseconds, memoised per process for the same environment."""
    raise NotImplementedError
