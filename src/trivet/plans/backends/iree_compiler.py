"""What the IREE backend asks of its compiler's process; `iree_child` is the other end."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trivet.plans.backends.child import load_arrays, run_child, save_arrays
from trivet.plans.model import Dimension, TensorInfo

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What the child is asked for: it compiles ``model`` to ``plan``.

    ``canary`` and ``expected`` are files of arrays; the first may be empty, for none.
    """

    model: str
    shapes: dict[str, tuple[Dimension, ...]]
    flags: tuple[str, ...]
    plan: str
    canary: str = ""
    expected: str = ""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: inputs and outputs with the sizes given, bytes and seconds.

    ``ran`` says that the canary did.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    size: int
    seconds: float
    ran: bool


def compile_model(
    model: Path,
    shapes: Mapping[str, tuple[Dimension, ...]],
    flags: Sequence[str],
    plan: Path,
    canary: Arrays | None = None,
) -> tuple[Done, dict[str, Array] | None]:
    """Write the compiled model to ``plan``; returns what it is and what it gave for ``canary``.

    The canary runs in the child, so that a plan which crashes takes no caller with it.

    Raises as `run_child` does.
    """
    scratch = plan.with_name("scratch")
    scratch.mkdir()
    try:
        job = Job(
            model=str(model.absolute()),
            shapes=dict(shapes),
            flags=tuple(flags),
            plan=str(plan.absolute()),
            canary=save_arrays(scratch / "canary.npz", canary) if canary else "",
            expected=str((scratch / "expected.npz").absolute()),
        )
        done = run_child("trivet.plans.backends.iree_child", job, Done, scratch)
        return done, load_arrays(Path(job.expected)) if done.ran else None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
