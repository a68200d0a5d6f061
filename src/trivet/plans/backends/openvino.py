"""OpenVINO on the CPU: a plan is an exported model, mapped into memory and imported."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.errors import BackendError, MissingExtra, TrivetError
from trivet.keys import FieldValue
from trivet.plans.backend import Built, FailureKind, Finding
from trivet.plans.backends.openvino_executable import OpenVinoExecutable
from trivet.plans.backends.openvino_options import (
    CORE_PROPERTIES,
    Option,
    check_extensions,
    check_options,
    lint_options,
    unknown_properties,
)
from trivet.plans.backends.openvino_plan import export_plan, map_plan
from trivet.plans.backends.openvino_ports import port_names, refuse_forwarded_strings, reshaping
from trivet.plans.backends.openvino_runtime import load_runtime
from trivet.plans.backends.packaged import PackagedBackend, require_size
from trivet.plans.canary import expected_of
from trivet.plans.environment import significant
from trivet.plans.facts.openvino import ENVIRONMENT, PACKAGE
from trivet.plans.host import HostFacts
from trivet.plans.installed import file_digest, locate, not_installed
from trivet.plans.model import Dimension, GraphId

if TYPE_CHECKING:
    from trivet.plans.model import Arrays

PLAN_FILE = "plan.blob"

# OpenVINO raises RuntimeError for everything; these are texts of what another attempt may survive.
_TRANSIENT = re.compile(
    r"bad_alloc|out of memory|cannot allocate|can ?not (?:open|create|map)|could ?n.t open"
    r"|could not open|no space left|resource temporarily unavailable|too many open files"
    r"|input/output error|permission denied|no such file|shared object",
    re.IGNORECASE,
)


class OpenVino(PackagedBackend):
    """Compiles, keeps and runs models with OpenVINO's CPU plug-in.

    Args:
        device: ``"CPU"``; plans are not kept for other devices.
        threads: threads of one inference; None leaves it to OpenVINO (all cores).
        streams: inferences that run at once; None leaves it to OpenVINO.
        hint: what OpenVINO tunes its defaults for, ``"latency"`` or ``"throughput"``.
        precision: ``"f32"``, ``"bf16"`` or ``"f16"``; None takes the machine's default, which is
            bf16 where the CPU multiplies matrices in bf16.
        options: further properties by their own names, such as ``{"ENABLE_CPU_PINNING": False}``.
            ``CACHE_DIR`` and ``CACHE_MODE`` are not applied (see `lint`).
        extensions: libraries with custom operators. They are identified by content; libraries
            that they load in turn are not.

    Raises `BackendError` for options that can't be honoured.
    """

    name = "openvino"
    package = PACKAGE
    suffixes = (".onnx", ".xml")  # with the ``.bin`` beside it

    def __init__(
        self,
        *,
        device: str = "CPU",
        threads: int | None = None,
        streams: int | None = None,
        hint: str | None = None,
        precision: str | None = None,
        options: Mapping[str, Option] | None = None,
        extensions: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        super().__init__()
        self._given = dict(options or {})
        self._applied = check_options(
            device=device,
            threads=threads,
            streams=streams,
            hint=hint,
            precision=precision,
            options=self._given,
        )
        self._device = device
        self._extensions = check_extensions(extensions)
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._applied.items())
        return f"OpenVino({options})"

    def key_fields(self, host: HostFacts) -> Mapping[str, FieldValue]:
        """Device, every property as applied, extensions by content, environment.

        Numbers of threads and streams are among the properties: OpenVINO's fusions may depend on
        them, and what it exports is the model after these.
        """
        memo = self._installed.memo
        return {
            "device": self._device,
            "properties": self._applied,
            "extensions": tuple(file_digest(each, memo) for each in self._extensions),
            "environment": significant(host.environment, ENVIRONMENT),
        }

    def warm_import(self) -> None:
        """Load OpenVINO with its CPU plug-in, and NumPy.

        Raises `MissingExtra`, and `BackendError` for properties that the installed version does
        not know.
        """
        self._core()
        import numpy  # noqa: F401  needed by every load, and slower than the rest

    def compile(
        self,
        model: Path,
        graph: GraphId,
        shapes: Mapping[str, tuple[Dimension, ...]],
        staging: Path,
        canary: Arrays | None = None,
    ) -> Built:
        """Compile, export into ``staging``, and load what was exported.

        The export is streamed: at no time is there another copy of the weights in memory than the
        compiled one. Plans are bound to their instruction set, since OpenVINO's default precision
        and its fusions follow it.
        """
        start = time.perf_counter()
        source = self._read(model, shapes)
        inputs = port_names(source.inputs, [each.name for each in graph.inputs])
        outputs = port_names(source.outputs, [each.name for each in graph.outputs])
        runtime, _ = self._core()
        compiled = self._compile(source)
        seconds = time.perf_counter() - start
        del source
        expected = expected_of(OpenVinoExecutable(runtime, compiled, inputs, outputs), canary)
        size = export_plan(compiled, staging / PLAN_FILE)
        del compiled  # before the plan is loaded: the weights would be in memory twice
        detail: dict[str, object] = {"inputs": inputs, "outputs": outputs, "size": size}
        return Built(
            executable=self.load(staging, detail),
            detail=detail,
            seconds=seconds,
            expected=expected,
        )

    def load(self, folder: Path, detail: Mapping[str, object]) -> OpenVinoExecutable:
        """Import the exported model, mapped; weights that need no repacking are used in place.

        Properties are applied again: OpenVINO does not take threads, streams and hints from the
        file. Raises `CorruptEntry` when the file is not as long as it was written.
        """
        runtime, core = self._core()
        mapping = map_plan(folder / PLAN_FILE)
        require_size(folder / PLAN_FILE, mapping.nbytes, detail)
        tensor = runtime.Tensor(mapping, shared_memory=True)
        compiled = core.import_model(tensor, self._device, self._config())
        inputs, outputs = _strings(detail["inputs"]), _strings(detail["outputs"])
        return OpenVinoExecutable(runtime, compiled, inputs, outputs, mapping)

    def fallback(
        self, model: Path, shapes: Mapping[str, tuple[Dimension, ...]]
    ) -> OpenVinoExecutable:
        """The model, compiled in memory and not kept."""
        source = self._read(model, shapes)
        inputs, outputs = port_names(source.inputs), port_names(source.outputs)
        return OpenVinoExecutable(self._core()[0], self._compile(source), inputs, outputs)

    def classify(self, error: BaseException) -> FailureKind:
        """What OpenVINO refuses stays refused; what the machine lacked may be there next time."""
        if isinstance(error, MissingExtra | MemoryError | OSError):
            return FailureKind.TRANSIENT
        if isinstance(error, TrivetError):
            return FailureKind.DETERMINISTIC
        if not isinstance(error, RuntimeError | ValueError | TypeError):
            return FailureKind.TRANSIENT
        found = _TRANSIENT.search(str(error))
        return FailureKind.TRANSIENT if found else FailureKind.DETERMINISTIC

    def tolerance(self) -> tuple[float, float]:
        """Tight where inference runs in 32 bits, about two units of bfloat16 where it may not."""
        precision = self._applied.get("INFERENCE_PRECISION_HINT")
        if precision is None and self._loaded is not None:
            default = self._loaded[1].get_property(self._device, "INFERENCE_PRECISION_HINT")
            precision = default.get_type_name()
        return (1e-4, 1e-5) if precision == "f32" else (2e-2, 1e-2)

    def lint(self) -> list[Finding]:
        """Options that are bypassed, unknown to the installed version, or costly."""
        folder = locate(PACKAGE.module)
        findings = []
        libraries: list[Path] = []
        if folder is None:
            findings.append(not_installed(PACKAGE))
        else:
            libraries += sorted(folder.glob("libs/libopenvino_intel_cpu_plugin.so*"))
            libraries += sorted(folder.glob("libs/libopenvino.so*"))
        return findings + lint_options(self._given, self._applied, libraries)

    def _core(self) -> tuple[Any, Any]:
        """The extension module and this backend's own ``Core``, which nobody gave a CACHE_DIR."""
        with self._lock:
            if self._loaded is None:
                runtime = load_runtime()
                core = runtime.Core()
                supported = core.get_property(self._device, "SUPPORTED_PROPERTIES")
                unknown = unknown_properties(self._applied, map(str, supported))
                if unknown:
                    raise BackendError(
                        f"the installed OpenVINO does not know {', '.join(unknown)}",
                        hint="check the spelling; it refuses what it does not know",
                    )
                for path in self._extensions:
                    core.add_extension(str(path))
                of_core = {k: v for k, v in self._applied.items() if k in CORE_PROPERTIES}
                if of_core:
                    core.set_property(of_core)
                self._loaded = runtime, core
            return self._loaded

    def _config(self) -> dict[str, Option]:
        return {k: v for k, v in self._applied.items() if k not in CORE_PROPERTIES}

    def _read(self, model: Path, shapes: Mapping[str, tuple[Dimension, ...]]) -> Any:
        runtime, core = self._core()
        source = core.read_model(str(model))
        refuse_forwarded_strings(source.outputs)
        if shapes:
            source.reshape(reshaping(runtime, source.inputs, shapes))
        return source

    def _compile(self, source: Any) -> Any:
        return self._core()[1].compile_model(source, self._device, self._config())


def _strings(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []
