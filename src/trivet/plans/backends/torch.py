"""PyTorch on the CPU: a plan is what AOTInductor compiles, without weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trivet.errors import CorruptEntry
from trivet.keys import FieldValue
from trivet.plans.backend import Built, Executable, FailureKind, Finding, Severity
from trivet.plans.backends.compiling import compile_elsewhere
from trivet.plans.backends.packaged import PackagedBackend, require_size, signature
from trivet.plans.backends.torch_executable import TorchExecutable
from trivet.plans.backends.torch_operators import register, require_schemas
from trivet.plans.backends.torch_options import (
    Option,
    check_operators,
    check_options,
    check_threads,
)
from trivet.plans.backends.torch_package import CALLS, LIBRARY, calls_size, require_isa
from trivet.plans.environment import significant
from trivet.plans.facts.torch import ENVIRONMENT, PACKAGE
from trivet.plans.host import HostFacts
from trivet.plans.installed import file_digest, missing
from trivet.plans.model import Dimension, GraphId
from trivet.plans.toolchain import compiler_fields, compiler_name, has_compiler

if TYPE_CHECKING:
    from trivet.plans.model import Arrays


NO_COMPILER = Finding(
    severity=Severity.ERROR,
    code="no-compiler",
    message="there is no C++ compiler, and PyTorch compiles with one",
    hint="install g++, or name one in CXX",
)


class Torch(PackagedBackend):
    """Compiles exported PyTorch programs with AOTInductor, keeps and runs them.

    A plan holds no weights: they are read from the model's file, verified, and bound when the plan
    is loaded. So models that differ in nothing else share one.

    Args:
        threads: of one inference, compiled in; None for one each usable CPU.
        options: settings of Inductor by their own names, such as ``{"max_autotune": True}``.
        custom_ops: ``.py`` files and ``.so`` libraries that register the operators which a model
            calls beside PyTorch's own, loaded in this order. They are identified by content; what
            they import in turn is not.
        any_compiler: leave the C++ compiler out of the key, so that a host without one finds what
            another host compiled with this option. No failed compile is then recorded.

    Raises `BackendError` for options that can't be honoured.
    """

    name = "torch"
    package = PACKAGE
    suffixes = (".pt2",)  # as ``torch.export.save`` writes them
    weights = "external"

    def __init__(
        self,
        *,
        threads: int | None = None,
        options: Mapping[str, Option | str] | None = None,
        custom_ops: Sequence[str | os.PathLike[str]] = (),
        any_compiler: bool = False,
    ) -> None:
        super().__init__()
        self._threads = check_threads(threads)
        self._options = check_options(options or {})
        self._custom_ops = check_operators(custom_ops)
        self._any_compiler = any_compiler

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._options.items())
        return f"Torch(threads={self._threads}{', ' * bool(options)}{options})"

    def key_fields(self, host: HostFacts) -> Mapping[str, FieldValue]:
        """Settings, threads, custom operators and C++ compiler by content, environment, libc.

        A plan is linked against the C library, and its headers are compiled in.
        """
        memo = self._installed.memo
        return {
            "options": self._options,
            "threads": self._threads,
            "custom_ops": tuple(file_digest(each, memo) for each in self._custom_ops),
            "compiler": self._compiler(host.environment),
            "environment": significant(host.environment, ENVIRONMENT),
            "libc": host.libc,
        }

    def warm_import(self) -> None:
        """Import PyTorch and NumPy, but neither Dynamo nor Inductor. Raises `MissingExtra`."""
        _torch()
        import numpy  # noqa: F401

    def compile(
        self,
        model: Path,
        graph: GraphId,
        shapes: Mapping[str, tuple[Dimension, ...]],
        staging: Path,
        canary: Arrays | None = None,
    ) -> Built:
        """Compile in a process of its own, load the plan, and bind the model's weights to it.

        Raises `BackendError` with what PyTorch said, OSError where there is no C++ compiler, and as
        `compile_elsewhere` does.
        """
        if not has_compiler(os.environ):
            raise OSError(f"{NO_COMPILER.message}; {NO_COMPILER.hint}")
        options = {
            "settings": self._options,
            "threads": self._threads,
            "operators": graph.operators,
            "custom_ops": tuple(map(str, self._custom_ops)),
        }
        child = "trivet.plans.backends.torch_child"
        done, expected = compile_elsewhere(child, model, shapes, staging, canary, options)
        self._installed.require_unchanged()
        executable = self.load(staging, done.detail)
        self.bind(executable, model, graph)
        return Built(
            executable=executable, detail=done.detail, seconds=done.seconds, expected=expected
        )

    def load(self, folder: Path, detail: Mapping[str, object]) -> TorchExecutable:
        """The library in its place, without weights: `bind` gives it some, before it can run.

        Raises `CorruptEntry` for a file that is not as long as it was written, and `BackendError`
        for one that needs more than this CPU has, or other custom operators.
        """
        torch = _torch()
        path = folder / LIBRARY
        require_size(path, path.stat().st_size, detail)
        features = detail["instruction_set"]
        require_isa(folder, tuple(features) if isinstance(features, list | tuple) else (), torch)
        register(torch, self._custom_ops)
        contracts = detail["operators"]
        require_schemas(torch, contracts if isinstance(contracts, dict) else {})
        if detail["calls"] != calls_size(folder):
            raise CorruptEntry(f"{folder / CALLS} is not as it was written")
        runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(path), 1)
        bounds = msgspec.convert(detail["bounds"], dict[str, tuple[int | None, int | None]])
        return TorchExecutable(torch, runner.run, runner, *signature(detail), bounds)

    def bind(self, executable: Executable, model: Path, graph: GraphId) -> None:
        """Give a loaded plan the weights of ``model``, which must be those of ``graph``.

        The plan reads them where they are. Raises `ModelChanged` when they are others, and
        `CorruptEntry` when the plan wants a weight that the model does not have.
        """
        from trivet.plans.backends.torch_weights import read_weights

        assert isinstance(executable, TorchExecutable)
        found = read_weights(_torch(), model, graph.weights)
        wanted = executable.native.get_constant_names_to_original_fqns()
        lacking = sorted(set(wanted.values()) - found.keys())
        if lacking:
            raise CorruptEntry(f"the plan wants weights that the model lacks: {lacking}")
        bound = {name: found[qualified] for name, qualified in wanted.items()}
        if bound:  # checked to be all, and not copied
            executable.native.update_constant_buffer(bound, False, True, True)
        executable.weights = bound

    def fallback(self, model: Path, shapes: Mapping[str, tuple[Dimension, ...]]) -> TorchExecutable:
        """The program as PyTorch runs it, operator by operator. Imports Dynamo and Inductor."""
        from trivet.plans.backends.torch_program import load_program, uncompiled
        from trivet.plans.graph.torch_export import read_signature

        register(_torch(), self._custom_ops)
        inputs, outputs = read_signature(model)
        return uncompiled(load_program(model), inputs, outputs)

    def classify(self, error: BaseException) -> FailureKind:
        """What PyTorch or g++ refuses stays refused; what the machine lacked may be there again."""
        return FailureKind.TRANSIENT if self._any_compiler else super().classify(error)

    def tolerance(self) -> tuple[float, float]:
        """Compiled code sums in another order than the model as it was run uncompiled."""
        return (1e-3, 1e-4)

    def lint(self) -> list[Finding]:
        """PyTorch or a compiler that is not there."""
        absent = super().lint()
        if not absent and not self._any_compiler and not has_compiler(os.environ):
            return [NO_COMPILER]
        return absent

    def _compiler(self, environment: Mapping[str, str]) -> FieldValue:
        if self._any_compiler:
            return "any"
        return compiler_fields(compiler_name(environment), self._installed.memo)


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise missing(PACKAGE, f"can't be imported: {error}") from error
    return torch
