"""TensorRT on NVIDIA GPUs: a plan is a serialised engine.

An engine is only right for the GPU, driver and build that it was made with. It says some of that
itself; that the file is whole, and made from this model with these options, is left to whoever
loads it.

Written against the API of TensorRT 10.14 and 11.4, and not yet run on a GPU.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trivet.keys import FieldValue
from trivet.plans.backend import Built, Finding, Severity
from trivet.plans.backends.compiling import Done, compile_elsewhere
from trivet.plans.backends.packaged import PackagedBackend, require_size, signature
from trivet.plans.backends.tensorrt_executable import (
    PLAN_FILE,
    TensorRtExecutable,
    load_cuda,
    load_tensorrt,
)
from trivet.plans.backends.tensorrt_fallback import BuiltForEachSize
from trivet.plans.backends.tensorrt_options import check_options
from trivet.plans.environment import significant
from trivet.plans.facts.tensorrt import BINDINGS, ENVIRONMENT, PACKAGE, gpu
from trivet.plans.host import HostFacts
from trivet.plans.installed import file_digest, installed_facts, locate, not_installed
from trivet.plans.model import Dimension, GraphId

if TYPE_CHECKING:
    from trivet.plans.model import Arrays

_PLAN_FORMAT = 1  # counts up when plans are made in another way


class TensorRt(PackagedBackend):
    """Builds, keeps and runs ONNX models with TensorRT.

    Every axis needs a size, from the model or from shape rules: a plan is for one set of sizes.

    Args:
        flags: of the builder, by TensorRT's names, such as ``{"FP16": True, "TF32": False}``.
        workspace: bytes of GPU memory that tactics may use; None for all.
        optimization_level: how long the builder searches, 0 to 5; None for TensorRT's own.
        strongly_typed: keep the types that the model says. From TensorRT 11 on it always does.
        plugins: libraries of plug-ins, identified by content.
        timing_cache: a file of measured tactics, as TensorRT serialises it, identified by content.
            It is read and not written.

    Raises `BackendError` for options that can't be honoured.
    """

    name = "tensorrt"
    package = PACKAGE

    def __init__(
        self,
        *,
        flags: Mapping[str, bool] | None = None,
        workspace: int | None = None,
        optimization_level: int | None = None,
        strongly_typed: bool = False,
        plugins: Sequence[str | os.PathLike[str]] = (),
        timing_cache: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self._options = check_options(
            flags=flags or {},
            workspace=workspace,
            optimization_level=optimization_level,
            strongly_typed=strongly_typed,
            plugins=plugins,
            timing_cache=timing_cache,
        )

    def __repr__(self) -> str:
        return f"TensorRt(flags={self._options.flags!r})"

    def key_fields(self, host: HostFacts) -> Mapping[str, FieldValue]:
        """Options, files by content, bindings, GPU and driver, the C library, environment.

        Raises `BackendError` where there is no GPU, or no telling which.
        """
        memo, options = self._installed.memo, self._options
        return {
            "plan_format": _PLAN_FORMAT,
            "options": {
                "flags": options.flags,
                "workspace": options.workspace,
                "optimization_level": options.optimization_level,
                "strongly_typed": options.strongly_typed,
            },
            "plugins": tuple(file_digest(Path(each), memo) for each in options.plugins),
            "timing_cache": options.timing_cache and file_digest(Path(options.timing_cache), memo),
            "bindings": msgspec.to_builtins(installed_facts(BINDINGS, memo)),
            "gpu": gpu(),
            "libc": host.libc,
            "environment": significant(host.environment, ENVIRONMENT),
        }

    def warm_import(self) -> None:
        """Import TensorRT and CUDA's bindings. Raises `MissingExtra`."""
        load_tensorrt()
        load_cuda()

    def compile(
        self,
        model: Path,
        graph: GraphId,
        shapes: Mapping[str, tuple[Dimension, ...]],
        staging: Path,
        canary: Arrays | None = None,
    ) -> Built:
        """Build in a process of its own, and load what it wrote.

        Raises `BackendError` where there is no GPU, and as `compile_elsewhere` does.
        """
        done, expected = self._compile(model, shapes, staging, canary)
        self._installed.require_unchanged()
        return Built(
            executable=self.load(staging, done.detail),
            detail=done.detail,
            seconds=done.seconds,
            expected=expected,
        )

    def load(self, folder: Path, detail: Mapping[str, object]) -> TensorRtExecutable:
        """Load the engine.

        Raises `CorruptEntry` when the file is not as long as it was written, and `BackendError`
        when TensorRT refuses it.
        """
        path = folder / PLAN_FILE
        require_size(path, path.stat().st_size, detail)
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as engine,
        ):
            return TensorRtExecutable(engine, *signature(detail), self._options.plugins)

    def fallback(
        self, model: Path, shapes: Mapping[str, tuple[Dimension, ...]]
    ) -> BuiltForEachSize:
        """The model, built for the sizes that it is run with, and not kept.

        Running takes as long as `compile` with new sizes, and fails where that fails.
        """

        def build(sizes: Mapping[str, tuple[Dimension, ...]]) -> TensorRtExecutable:
            with tempfile.TemporaryDirectory(prefix="trivet-tensorrt-") as folder:
                done, _ = self._compile(model, sizes, Path(folder), None)
                return self.load(Path(folder), done.detail)

        gpu()
        return BuiltForEachSize(model, shapes, build)

    def tolerance(self) -> tuple[float, float]:
        """Two runs of one engine may sum in another order."""
        return 1e-3, 1e-4

    def lint(self) -> list[Finding]:
        """Whether TensorRT is installed, and flags that the installed one does not know."""
        folder = locate(BINDINGS.module)
        if locate(PACKAGE.module) is None or folder is None:
            return [not_installed(PACKAGE)]
        known = (folder / "tensorrt.so").read_bytes()
        return [
            Finding(
                severity=Severity.ERROR,
                code="unknown-flag",
                message=f"the installed TensorRT has no flag {name}",
                hint="from release 11 on the model says the types; export it in those wanted",
            )
            for name in self._options.flags
            if name.encode() + b"\0" not in known  # linkers merge the ends of strings
        ]

    def _compile(
        self,
        model: Path,
        shapes: Mapping[str, tuple[Dimension, ...]],
        folder: Path,
        canary: Arrays | None,
    ) -> tuple[Done, Any]:
        gpu()
        child = "trivet.plans.backends.tensorrt_child"
        options = msgspec.to_builtins(self._options)
        return compile_elsewhere(child, model, shapes, folder, canary, options)
