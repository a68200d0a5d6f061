"""The options of the TensorRT backend: those of its builder that a plan can honour."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from trivet.errors import BackendError

# By TensorRT's names. Later releases lack some: where a network says the types itself, nothing is
# left to choose.
FLAGS = (
    *("BF16", "DIRECT_IO", "DISTRIBUTIVE_INDEPENDENCE", "FP16", "FP4", "FP8", "INT4", "INT8"),
    *("OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS", "REJECT_EMPTY_ALGORITHMS"),
    *("SPARSE_WEIGHTS", "STRICT_NANS", "TF32"),
)
_REFUSED = {
    "VERSION_COMPATIBLE": "a plan is bound to the version in any case, and this one is slower",
    "EXCLUDE_LEAN_RUNTIME": "it goes with VERSION_COMPATIBLE",
    "REFIT": "plans are not refitted; other weights are another plan",
    "REFIT_IDENTICAL": "plans are not refitted",
    "REFIT_INDIVIDUAL": "plans are not refitted",
    "STRIP_PLAN": "an engine without its weights can't run",
    "WEIGHTLESS": "an engine without its weights can't run",
    "WEIGHT_STREAMING": "it needs a budget at run time, which this backend does not give",
    "GPU_FALLBACK": "plans are for the GPU alone",
    "SAFETY_SCOPE": "plans are for the standard runtime",
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the builder is told.

    Attributes:
        flags: TensorRT's name of a flag to whether it is set; others stay as TensorRT has them.
        workspace: bytes that tactics may use, None for all memory of the GPU.
        optimization_level: 0 to 5, None for TensorRT's own.
        strongly_typed: the model's types are kept, whatever would be faster.
        plugins: libraries of plug-ins. timing_cache: a file, or empty.
    """

    flags: dict[str, bool]
    workspace: int | None
    optimization_level: int | None
    strongly_typed: bool
    plugins: tuple[str, ...]
    timing_cache: str


def check_options(
    *,
    flags: Mapping[str, bool],
    workspace: int | None,
    optimization_level: int | None,
    strongly_typed: bool,
    plugins: Sequence[str | os.PathLike[str]],
    timing_cache: str | os.PathLike[str] | None,
) -> Options:
    """The options. Raises `BackendError` for one that a plan can't honour."""
    for name, value in flags.items():
        if name in _REFUSED:
            raise BackendError(f"the flag {name} can't be set: {_REFUSED[name]}")
        if name not in FLAGS:
            raise BackendError(
                f"{name!r} is not a flag that plans support",
                hint=f"supported are {', '.join(FLAGS)}",
            )
        if type(value) is not bool:
            raise BackendError(f"the flag {name} is True or False, got {value!r}")
    if workspace is not None and (type(workspace) is not int or workspace < 1):
        raise BackendError(f"workspace is a number of bytes, got {workspace!r}")
    if optimization_level is not None and optimization_level not in range(6):
        raise BackendError(f"optimization_level is 0 to 5, got {optimization_level!r}")
    if isinstance(plugins, str | os.PathLike):
        raise BackendError("plugins is a sequence of paths, got a single one")
    return Options(
        flags=dict(sorted(flags.items())),
        workspace=workspace,
        optimization_level=optimization_level,
        strongly_typed=bool(strongly_typed),
        plugins=tuple(_file("plugins", each) for each in plugins),
        timing_cache="" if timing_cache is None else _file("timing_cache", timing_cache),
    )


def _file(option: str, path: str | os.PathLike[str]) -> str:
    found = Path(path).absolute()
    if not found.is_file():
        raise BackendError(f"{option}: {found} is not a file")
    return str(found)
