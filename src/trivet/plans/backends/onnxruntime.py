"""The ONNX Runtime backend: a plan is the optimised model with its weights in a file beside it.

ONNX Runtime has no compile cache. It can save the graph after optimisation, and when the weights
go to an external file, loading maps them instead of copying. That is where the time goes: parsing,
copying and optimising fall away, and what is left is packing weights for the kernels.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.errors import BackendError, MissingExtra, ShapeError, TrivetError
from trivet.keys import FieldValue
from trivet.plans.backend import Built, FailureKind, Finding
from trivet.plans.backends.onnxruntime_options import (
    CPU,
    Provider,
    check_options,
    lint_options,
    model_sets_options,
)
from trivet.plans.backends.onnxruntime_session import (
    OrtExecutable,
    load_runtime,
    open_session,
    session_options,
)
from trivet.plans.backends.packaged import PackagedBackend
from trivet.plans.canary import expected_of
from trivet.plans.environment import significant
from trivet.plans.facts.onnxruntime import ENVIRONMENT, PACKAGE
from trivet.plans.host import HostFacts
from trivet.plans.installed import file_digest, locate, not_installed
from trivet.plans.model import Dimension, GraphId

if TYPE_CHECKING:
    from trivet.plans.model import Arrays

MODEL_FILE = "model.onnx"
WEIGHTS_FILE = "weights.bin"
_PLAN_FORMAT = 1  # counts up when the files of a plan are made in another way
_INLINE_BELOW = "1024"  # bytes; smaller weights stay in the graph, where shape inference sees them

_DETERMINISTIC = frozenset(
    {"InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoModel", "NotImplemented"}
)
# FAIL and RUNTIME_EXCEPTION stand for anything; these texts are about the model.
_ABOUT_THE_MODEL = (
    r"is not a registered function/op|invalid model|not implemented|unsupported|not supported"
    r"|type inference failed|shape inference|ValidateOpset|RegisterCustomOps"
    r"|could not find an implementation|Load model from .* failed"
)
_ABOUT_THE_MACHINE = (
    r"bad_alloc|allocate|no space|write external|serialization failed|systemerror|errno"
    r"|too many open files|cannot open|permission|resource temporarily|file doesn't exist"
)
# A canary could not compare these.
_CONTAINERS = frozenset({"sequence", "map", "optional", "sparse_tensor", "opaque"})
_PROBE_BYTES = 1 << 20


class OnnxRuntime(PackagedBackend):
    """Compiles, keeps and runs ONNX models on ONNX Runtime's CPU provider.

    Args:
        threads: threads within an operator; None leaves it to ONNX Runtime (all cores). Not part
            of a plan: the same files serve any number.
        inter_op_threads: threads between operators; given, operators run in parallel.
        level: how far graphs are optimised: ``"disabled"``, ``"basic"``, ``"extended"`` or
            ``"all"``. Plans of ``"extended"`` are portable between CPUs for most models.
        options: session configuration entries by ONNX Runtime's names, such as
            ``{"session.intra_op.allow_spinning": "0"}``. Names that it does not know do nothing
            there; `lint` finds them.
        disabled_optimizers: names of graph optimisers to leave out.
        custom_op_libraries: libraries with custom operators, identified by content; libraries that
            they load in turn are not.
        providers: execution providers in order of preference, each a name or a name with options.
            With any other than the CPU's, nothing is compiled ahead: models run uncompiled.

    Raises `BackendError` for options that can't be honoured.
    """

    name = "onnxruntime"
    package = PACKAGE

    def __init__(
        self,
        *,
        threads: int | None = None,
        inter_op_threads: int | None = None,
        level: str = "all",
        options: Mapping[str, str] | None = None,
        disabled_optimizers: Sequence[str] = (),
        custom_op_libraries: Sequence[str | os.PathLike[str]] = (),
        providers: Sequence[Provider] = (CPU,),
    ) -> None:
        super().__init__()
        self._options = check_options(
            threads=threads,
            inter_op_threads=inter_op_threads,
            level=level,
            options=options or {},
            disabled_optimizers=disabled_optimizers,
            custom_op_libraries=custom_op_libraries,
            providers=providers,
        )

    def __repr__(self) -> str:
        return f"OnnxRuntime(level={self._options.level!r}, threads={self._options.threads})"

    def key_fields(self, host: HostFacts) -> Mapping[str, FieldValue]:
        """Level, entries, optimisers, providers, libraries by content, environment.

        Not in it: numbers of threads and how threads wait. ONNX Runtime divides work when it runs,
        and saves the same bytes for any number.
        """
        options = self._options
        return {
            "plan_format": _PLAN_FORMAT,
            "level": options.level,
            "options": options.significant_entries,
            "disabled_optimizers": options.disabled_optimizers,
            "custom_op_libraries": tuple(
                file_digest(Path(path), self._installed.memo)
                for path in options.custom_op_libraries
            ),
            "providers": options.providers,
            "environment": significant(host.environment, ENVIRONMENT),
        }

    def accepts(self, model: Path) -> bool:
        """``.onnx``, under a name that is UTF-8: ONNX Runtime takes no other."""
        return super().accepts(model) and _is_unicode(str(model))

    def warm_import(self) -> None:
        """Import ONNX Runtime. Raises `MissingExtra`."""
        load_runtime()

    def compile(
        self,
        model: Path,
        graph: GraphId,
        shapes: Mapping[str, tuple[Dimension, ...]],
        staging: Path,
        canary: Arrays | None = None,
    ) -> Built:
        """Optimise, save into ``staging``, and load what was saved.

        Sizes given for symbolic axes are fixed in the plan; axes that the model does not name stay
        free. The first session is closed before the plan is loaded, so that the weights are not in
        memory twice.

        Raises `BackendError` for providers whose plans can't be kept and while models bring their
        own options (ORT_LOAD_CONFIG_FROM_MODEL), `ShapeError` for sizes that contradict the model,
        `OSError` when ``staging`` can't be written.
        """
        from trivet.plans.backends.onnxruntime_plan import cpu_dependence, cpu_detail, scan

        self._refuse_what_can_not_be_kept(graph)
        scalars = [each.name for each in (*graph.inputs, *graph.outputs) if each.shape == ()]
        expected, seconds = self._save(model, _fixed_symbols(graph, shapes), staging, canary)
        saved = scan(staging / MODEL_FILE)
        if not saved.locations <= {WEIGHTS_FILE}:
            raise BackendError(
                f"ONNX Runtime left weights outside the plan, in {sorted(saved.locations)}"
            )
        for path in staging.iterdir():
            if path.name not in (MODEL_FILE, WEIGHTS_FILE):
                path.unlink()
        bound = cpu_dependence(scan(model), saved, graph, self._options)
        detail: dict[str, object] = {"scalars": scalars, "bound": bound}
        if bound:
            detail |= cpu_detail()
        return Built(
            executable=self.load(staging, detail),
            portable=not bound,
            detail=detail,
            seconds=seconds,
            expected=expected,
        )

    def load(self, folder: Path, detail: Mapping[str, object]) -> OrtExecutable:
        """A session on the saved model; its weights are mapped, and packed on all threads."""
        runtime = load_runtime()
        made = session_options(runtime, self._options, "disabled")
        if "session.prepack.enable_parallel" not in self._options.entries:
            made.add_session_config_entry("session.prepack.enable_parallel", "1")
        scalars = detail.get("scalars", ())
        return OrtExecutable(
            open_session(runtime, folder / MODEL_FILE, made, self._options),
            tuple(map(str, scalars)) if isinstance(scalars, list | tuple) else (),
        )

    def fallback(self, model: Path, shapes: Mapping[str, tuple[Dimension, ...]]) -> OrtExecutable:
        """A plain session with the same options. Symbolic axes stay free, whatever ``shapes``."""
        runtime = load_runtime()
        made = session_options(runtime, self._options, self._options.level)
        return OrtExecutable(open_session(runtime, model, made, self._options))

    def classify(self, error: BaseException) -> FailureKind:
        """What is known to be about the model is deterministic; anything else may pass."""
        if isinstance(error, MissingExtra | MemoryError | OSError):
            return FailureKind.TRANSIENT
        if isinstance(error, TrivetError):
            return FailureKind.DETERMINISTIC
        text = str(error)
        if re.search(_ABOUT_THE_MACHINE, text, re.IGNORECASE):
            return FailureKind.TRANSIENT
        if type(error).__name__ in _DETERMINISTIC or re.search(
            _ABOUT_THE_MODEL, text, re.IGNORECASE
        ):
            return FailureKind.DETERMINISTIC
        return FailureKind.TRANSIENT

    def tolerance(self) -> tuple[float, float]:
        """Sums may be taken in another order by another number of threads or another CPU."""
        return 1e-4, 1e-5

    def lint(self) -> list[Finding]:
        """Entries and optimisers that the installed library does not know, and other traps."""
        folder = locate(PACKAGE.module)
        if folder is None:
            return [not_installed(PACKAGE)]
        libraries = [path for glob in PACKAGE.libraries for path in sorted(folder.glob(glob))]
        return lint_options(self._options, os.environ, libraries)

    def _refuse_what_can_not_be_kept(self, graph: GraphId) -> None:
        other = [name for name, _ in self._options.providers if name != CPU]
        if other:
            raise BackendError(
                f"plans are kept for {CPU} alone; {other[0]} compiles in ways that this backend "
                "can't identify",
                hint="the model runs uncompiled; use the provider's own cache",
            )
        for each in (*graph.inputs, *graph.outputs):
            if each.dtype in _CONTAINERS:
                raise BackendError(
                    f"{each.name!r} is a {each.dtype}: plans are kept for models of tensors",
                    hint="the model runs uncompiled",
                )
        if model_sets_options(os.environ):
            raise BackendError(
                "ORT_LOAD_CONFIG_FROM_MODEL is set: options from a model's metadata are not in the "
                "key, so its plan can't be kept",
                hint="give the options to the backend, and unset the variable",
            )

    def _save(
        self, model: Path, fixed: Mapping[str, int], staging: Path, canary: Arrays | None
    ) -> tuple[Arrays | None, float]:
        """Write the optimised model; returns what it gives for ``canary``, and the seconds."""
        runtime = load_runtime()
        made = session_options(runtime, self._options, self._options.level)
        for symbol, size in fixed.items():
            made.add_free_dimension_override_by_name(symbol, size)
        made.optimized_model_filepath = str(staging / MODEL_FILE)
        for key, value in (
            ("session.optimized_model_external_initializers_file_name", WEIGHTS_FILE),
            ("session.optimized_model_external_initializers_min_size_in_bytes", _INLINE_BELOW),
            # Packing would cost time and as much memory as the weights, for one run at most.
            ("session.disable_prepacking", "1"),
        ):
            made.add_session_config_entry(key, value)
        try:
            start = time.perf_counter()
            session = open_session(runtime, model, made, self._options)
            seconds = time.perf_counter() - start
        except MemoryError:
            raise
        except Exception:
            _probe(staging)  # a full disk reads like any other failure in ONNX Runtime's words
            raise
        return expected_of(OrtExecutable(session), canary), seconds


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fixed_symbols(graph: GraphId, shapes: Mapping[str, tuple[Dimension, ...]]) -> dict[str, int]:
    """Symbol to size, for the symbolic axes to which ``shapes`` gives a size."""
    known = {each.name: each.shape for each in graph.inputs}
    fixed: dict[str, int] = {}
    for name, sizes in shapes.items():
        if name not in known:
            raise ShapeError(f"the model has no input {name!r}")
        model_shape = known[name]
        if model_shape is None:
            continue
        if len(model_shape) != len(sizes):
            raise ShapeError(
                f"input {name!r} has {len(model_shape)} axes in the model, {len(sizes)} were given"
            )
        for own, size in zip(model_shape, sizes, strict=True):
            if not isinstance(size, int) or own is None:
                continue
            if (own if isinstance(own, int) else fixed.setdefault(own, size)) != size:
                raise ShapeError(f"input {name!r}: {own!r} can't be {size} here")
    return fixed


def _probe(folder: Path) -> None:
    """Raise the `OSError` that writing into ``folder`` meets, if it meets one."""
    path = folder / "probe"
    try:
        with path.open("wb") as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink(missing_ok=True)
