"""IREE on the CPU: a plan is a module of machine code and weights, mapped into memory.

IREE has no compile cache: its compiler makes a ``.vmfb`` file ahead of time, and that the file fits
the model, the build and the CPU is left to whoever loads it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trivet.errors import BackendError
from trivet.keys import FieldValue
from trivet.plans.backend import BackendFacts, Built, Finding
from trivet.plans.backends.compiling import Done, compile_elsewhere
from trivet.plans.backends.iree_executable import (
    PLAN_FILE,
    IreeExecutable,
    load_runtime,
    open_device,
)
from trivet.plans.backends.iree_options import (
    GENERIC,
    HOST,
    check_options,
    compiler_flags,
    lint_options,
)
from trivet.plans.backends.packaged import PackagedBackend, require_size, signature
from trivet.plans.environment import significant
from trivet.plans.facts.iree import COMPILER, ENVIRONMENT, ONNX, PACKAGE, UNIDENTIFIED
from trivet.plans.host import HostFacts, read_host
from trivet.plans.installed import installed_facts, locate, missing, not_installed
from trivet.plans.model import Dimension, GraphId

if TYPE_CHECKING:
    from trivet.plans.memo import Memo
    from trivet.plans.model import Arrays

_PLAN_FORMAT = 1  # counts up when plans are made in another way


class Iree(PackagedBackend):
    """Compiles, keeps and runs ONNX models with IREE on the CPU.

    Args:
        cpu: ``"host"`` for this machine's CPU features, ``"generic"`` for code that runs on every
            CPU of the architecture (its plans are portable, and slower), or LLVM's name of a CPU.
        device: ``"local-task"`` runs on all cores, ``"local-sync"`` on the calling thread. Not
            part of a plan: the same file serves both.
        flags: further flags of ``iree-compile``, such as ``["--iree-opt-level=O3"]``. Flags that
            read or write files are refused.

    Raises `BackendError` for options that can't be honoured.
    """

    name = "iree"
    package = PACKAGE
    runs_uncompiled = False

    def __init__(
        self, *, cpu: str = HOST, device: str = "local-task", flags: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self._options = check_options(cpu=cpu, device=device, flags=flags)

    def __repr__(self) -> str:
        return f"Iree(cpu={self._options.cpu!r}, device={self._options.device!r})"

    def facts(self, memo: Memo | None = None) -> BackendFacts:
        """Compiler and runtime as installed; read once per backend. Raises `MissingExtra`."""
        if locate(COMPILER) is None:
            raise missing(PACKAGE, "is installed without its compiler")
        return super().facts(memo)

    def key_fields(self, host: HostFacts) -> Mapping[str, FieldValue]:
        """Every flag that the compiler is given, CPU features among them; ``onnx``; environment."""
        return {
            "plan_format": _PLAN_FORMAT,
            "flags": compiler_flags(self._options, host),
            "importer": msgspec.to_builtins(installed_facts(ONNX, self._installed.memo)),
            "environment": significant(host.environment, ENVIRONMENT),
        }

    def warm_import(self) -> None:
        """Import IREE's runtime and start its device. Raises `MissingExtra`."""
        open_device(self._options.device)

    def compile(
        self,
        model: Path,
        graph: GraphId,
        shapes: Mapping[str, tuple[Dimension, ...]],
        staging: Path,
        canary: Arrays | None = None,
    ) -> Built:
        """Compile in a process of its own, and map what it wrote.

        Axes without a size stay free: one plan then serves all sizes. The canary runs in that
        process, too.

        Raises `BackendError` while the environment names programs or plug-ins for the compiler.
        """
        for name in UNIDENTIFIED:
            if os.environ.get(name):
                raise BackendError(
                    f"{name} is set: what it names is not in the key, so no plan is kept",
                    hint="unset it",
                )
        done, expected = self._compile(model, shapes, staging, canary)
        self._installed.require_unchanged()
        return Built(
            executable=self.load(staging, done.detail),
            portable=self._options.cpu == GENERIC,
            detail={**done.detail, "cpu": self._options.cpu},
            seconds=done.seconds,
            expected=expected,
        )

    def load(self, folder: Path, detail: Mapping[str, object]) -> IreeExecutable:
        """Map the module. Raises `CorruptEntry` when the file is not as long as it was written.

        IREE itself checks little: most damage would run, and some of it crash.
        """
        path = folder / PLAN_FILE
        require_size(path, path.stat().st_size, detail)
        runtime = load_runtime()

        def open_module(instance: Any) -> Any:
            return runtime.VmModule.mmap(instance, str(path))

        return IreeExecutable(self._options.device, open_module, *signature(detail))

    def fallback(self, model: Path, shapes: Mapping[str, tuple[Dimension, ...]]) -> IreeExecutable:
        """The model, compiled and not kept: IREE runs nothing uncompiled.

        It takes as long as `compile`, and fails where that fails.
        """
        with tempfile.TemporaryDirectory(prefix="trivet-iree-") as folder:
            done, _ = self._compile(model, shapes, Path(folder))
            return self.load(Path(folder), done.detail)

    def tolerance(self) -> tuple[float, float]:
        """Threads share out rows and not sums, so two runs differ little."""
        return 1e-4, 1e-5

    def lint(self) -> list[Finding]:
        """Flags that the installed compiler does not know."""
        compiler = locate(COMPILER)
        if locate(PACKAGE.module) is None or compiler is None:
            return [not_installed(PACKAGE)]
        return lint_options(self._options, sorted(compiler.glob("_mlir_libs/libIREECompiler.so")))

    def _compile(
        self,
        model: Path,
        shapes: Mapping[str, tuple[Dimension, ...]],
        folder: Path,
        canary: Arrays | None = None,
    ) -> tuple[Done, Any]:
        flags = compiler_flags(self._options, read_host(os.environ))
        child = "trivet.plans.backends.iree_child"
        return compile_elsewhere(child, model, shapes, folder, canary, {"flags": flags})
