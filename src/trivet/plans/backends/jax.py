"""JAX on the CPU: a plan is XLA's executable of a program that ``jax.export`` wrote.

An exported program is portable and not compiled: every process that loads one compiles it. JAX's
own cache keeps what it compiled under a key of its own; a damaged entry there is never replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from trivet.errors import BackendError
from trivet.keys import FieldValue
from trivet.plans.backend import Built, Finding
from trivet.plans.backends.compiling import compile_elsewhere
from trivet.plans.backends.jax_program import (
    PLAN_FILE,
    JaxExecutable,
    Program,
    cpu_device,
    executes,
    load_jax,
    prepare_lapack,
)
from trivet.plans.backends.packaged import PackagedBackend, require_size, signature
from trivet.plans.environment import significant
from trivet.plans.facts.jax import ENVIRONMENT, FORCED, FRONT, PACKAGE
from trivet.plans.host import HostFacts, read_host
from trivet.plans.installed import installed_facts, locate, not_installed
from trivet.plans.model import Dimension, GraphId

if TYPE_CHECKING:
    from trivet.plans.model import Arrays

Option: TypeAlias = str | int | float | bool

_PLAN_FORMAT = 1  # counts up when plans are made in another way
_NAME = re.compile(r"xla_[a-z0-9_]+")
_REFUSED = re.compile(r"xla_(?:dump|.*(?:path|file|dir|cache|aot|profile)).*")


class Jax(PackagedBackend):
    """Compiles, keeps and runs programs of ``jax.export`` with XLA on the CPU.

    Models are files that hold what ``jax.export.export(...)(...).serialize()`` gives, with the
    suffix ``.jaxexport``. Weights are within the program or among its arguments. Every axis needs
    a size: from the program, or from shape rules where it was exported with symbols.

    Args:
        options: of XLA, by its own names, such as ``{"xla_cpu_max_isa": "AVX2"}``.

    Raises `BackendError` for options that can't be honoured.
    """

    name = "jax"
    package = PACKAGE
    suffixes = (".jaxexport",)

    def __init__(self, *, options: Mapping[str, Option] | None = None) -> None:
        super().__init__()
        self._options = _check_options(options or {})

    def __repr__(self) -> str:
        return f"Jax(options={self._options!r})"

    def key_fields(self, host: HostFacts) -> Mapping[str, FieldValue]:
        """Options, JAX itself, environment, the C library, and the number of processors.

        XLA divides the work of a plan by the processors that it may use when it compiles, and
        machine code may call the C library.
        """
        return {
            "plan_format": _PLAN_FORMAT,
            "options": self._options,
            "front": msgspec.to_builtins(installed_facts(FRONT, self._installed.memo)),
            "libc": host.libc,
            "processors": len(os.sched_getaffinity(0)),
            "environment": significant(host.environment, ENVIRONMENT),
        }

    def warm_import(self) -> None:
        """Import JAX and start its CPU client. Raises `MissingExtra`."""
        cpu_device()

    def compile(
        self,
        model: Path,
        graph: GraphId,
        shapes: Mapping[str, tuple[Dimension, ...]],
        staging: Path,
        canary: Arrays | None = None,
    ) -> Built:
        """Compile in a process of its own, and load what it wrote.

        Settings that the caller made in JAX don't count there. The canary runs there, too.
        """
        child = "trivet.plans.backends.jax_child"
        done, expected = compile_elsewhere(
            child, model, shapes, staging, canary, self._options, **FORCED
        )
        self._installed.require_unchanged()
        if tuple(done.detail["instruction_set"]) != read_host(os.environ).instruction_set:
            raise BackendError("the compiler's process sees another CPU than this one")
        return Built(
            executable=self.load(staging, done.detail),
            detail=done.detail,
            seconds=done.seconds,
            expected=expected,
        )

    def load(self, folder: Path, detail: Mapping[str, object]) -> JaxExecutable:
        """Load the executable. Nothing in a plan is pickled.

        Raises `CorruptEntry` when the file is not as long as it was written: XLA crashes of some
        damage.
        """
        path = folder / PLAN_FILE
        raw = path.read_bytes()
        require_size(path, len(raw), detail)
        device = cpu_device()
        prepare_lapack(raw)
        executable = device.client.deserialize_executable(raw, executable_devices=[device])
        inputs, outputs = signature(detail)
        return JaxExecutable(executes(executable, len(outputs)), executable, inputs, outputs)

    def fallback(self, model: Path, shapes: Mapping[str, tuple[Dimension, ...]]) -> JaxExecutable:
        """The program under ``jax.jit``: compiled in memory for each set of sizes it is run with.

        It has none of the backend's options, but the settings of this process.
        """
        jax = load_jax()
        program = Program(model)
        jitted = jax.jit(program.call)
        inputs = tuple(
            msgspec.structs.replace(each, shape=shapes.get(each.name, each.shape))
            for each in program.inputs
        )
        return JaxExecutable(lambda arrays: jitted(*arrays), jitted, inputs, program.outputs)

    def tolerance(self) -> tuple[float, float]:
        """A plan divides its work in one way, whatever runs beside it."""
        return 1e-4, 1e-5

    def lint(self) -> list[Finding]:
        """Whether JAX is installed: XLA itself refuses options that it does not know."""
        absent = [each for each in (PACKAGE, FRONT) if locate(each.module) is None]
        return [not_installed(each) for each in absent[:1]]


def _check_options(options: Mapping[str, Option]) -> dict[str, Option]:
    for name, value in options.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BackendError(f"XLA's options have names like xla_cpu_max_isa, got {name!r}")
        if _REFUSED.fullmatch(name):
            raise BackendError(f"{name} can't be set: files beside a plan can change unnoticed")
        if type(value) not in (str, int, float, bool):
            raise BackendError(
                f"{name} is a string, a number or a bool, got {type(value).__qualname__}"
            )
    return {name: _typed(value) for name, value in sorted(options.items())}


def _typed(value: Option) -> Option:
    """What a command line writes, as XLA takes it: ``"2"`` is 2, ``"true"`` is True."""
    if not isinstance(value, str):
        return value
    if value.isdecimal() and value.isascii():
        return int(value)
    return {"true": True, "false": False}.get(value.lower(), value)
