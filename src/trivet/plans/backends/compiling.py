"""A model compiled by a process of its own: what it is asked for, and what it answers."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trivet.plans.backends.child import load_arrays, run_child, save_arrays
from trivet.plans.canary import expected_of
from trivet.plans.model import Dimension

if TYPE_CHECKING:
    from trivet.plans.backend import Executable
    from trivet.plans.model import Array, Arrays

_SCRATCH = ".compile"  # below the plan's folder, and gone when it is compiled
_PLAIN = frozenset("?biufc")  # kinds of arrays that a file can hold


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Compile the file ``model`` into ``folder``. All paths are absolute.

    ``canary`` and ``expected`` are files of arrays; ``canary`` is empty where there is none.
    """

    model: str
    folder: str
    shapes: dict[str, tuple[Dimension, ...]]
    options: dict[str, Any]
    canary: str
    expected: str


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """`Built.detail`, and the seconds that compiling took."""

    detail: dict[str, Any]
    seconds: float


def compile_elsewhere(
    module: str,
    model: Path,
    shapes: Mapping[str, tuple[Dimension, ...]],
    folder: Path,
    canary: Arrays | None,
    options: Mapping[str, object],
    **environment: str,
) -> tuple[Done, dict[str, Array] | None]:
    """Have ``module.main`` do a `Job`; returns what it did and what the model gave for ``canary``.

    The canary runs there, so that a plan which crashes takes no caller with it. The process writes
    only into ``folder``; its folder for temporary files is below, and removed.

    Raises as `run_child` does.
    """
    scratch = folder.absolute() / _SCRATCH
    scratch.mkdir()
    try:
        job = Job(
            model=str(model.absolute()),
            folder=str(folder.absolute()),
            shapes=dict(shapes),
            options=dict(options),
            canary=save_arrays(scratch / "canary.npz", canary) if canary else "",
            expected=str(scratch / "expected.npz"),
        )
        done = run_child(module, job, Done, scratch, **environment)
        expected = Path(job.expected)
        return done, load_arrays(expected) if expected.is_file() else None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def canary_of(job: Job) -> dict[str, Array] | None:
    """In the child: the canary's inputs."""
    return load_arrays(Path(job.canary)) if job.canary else None


def keep_expected(job: Job, model: Executable) -> bool:
    """In the child: write what ``model`` gives for the canary; False when it takes none."""
    found = expected_of(model, canary_of(job))
    if found is None or any(each.dtype.kind not in _PLAIN for each in found.values()):
        return False
    save_arrays(Path(job.expected), found)
    return True
