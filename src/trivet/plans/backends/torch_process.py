"""Starting the process that compiles, and what it answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trivet.errors import BackendError
from trivet.plans.backends.torch_compiler import Answer, Task
from trivet.plans.model import Dimension

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

_KEPT = 4000  # characters of what a failed process said


def compile_elsewhere(
    *,
    work: Path,
    model: Path,
    folder: Path,
    canary: Arrays | None,
    settings: Mapping[str, bool | int | float],
    threads: int,
    operators: Sequence[str],
    custom_ops: Sequence[Path],
    shapes: Mapping[str, tuple[Dimension, ...]],
) -> tuple[dict[str, object], dict[str, Array] | None]:
    """Compile in a new process that writes only into ``work`` and ``folder``.

    Returns `Built.detail` and `Built.expected`. Raises `BackendError` with what the other process
    raised, and `OSError` when it ended without an answer.
    """
    import numpy as np

    for each in (work, work / "tmp", work / "inductor"):
        each.mkdir()
    inputs, expected, answer = work / "canary.npz", work / "expected.npz", work / "answer.json"
    if canary is not None:
        np.savez(inputs, **canary)  # type: ignore[arg-type]
    task = Task(
        model=str(model.absolute()),
        package=str((work / "package.pt2").absolute()),
        folder=str(folder.absolute()),
        canary="" if canary is None else str(inputs.absolute()),
        expected=str(expected.absolute()),
        settings=dict(settings),
        threads=threads,
        operators=tuple(operators),
        custom_ops=tuple(map(str, custom_ops)),
        shapes=dict(shapes),
    )
    said = _run(task, work, answer)
    if not answer.is_file():
        raise OSError(f"the process that compiles ended without an answer: {said}")
    found = msgspec.json.decode(answer.read_bytes(), type=Answer)
    if found.error:
        raise BackendError(f"{found.error}: {found.text}\n{said}".strip())
    if not expected.is_file():
        return found.detail, None
    with np.load(expected, allow_pickle=False) as stored:
        return found.detail, dict(stored)


def _run(task: Task, work: Path, answer: Path) -> str:
    """Run the process; returns what it said last."""
    environment = {
        # Some lowerings are others where CI is set; a plan from there is meant for elsewhere.
        **{name: value for name, value in os.environ.items() if name != "CI"},
        "PYTHONPATH": os.pathsep.join(os.path.abspath(each) for each in sys.path),
        "TMPDIR": str((work / "tmp").absolute()),
        "TORCHINDUCTOR_CACHE_DIR": str((work / "inductor").absolute()),
        "TRITON_CACHE_DIR": str((work / "inductor").absolute()),
    }
    done = subprocess.run(
        [sys.executable, "-m", "trivet.plans.backends.torch_compiler", str(answer.absolute())],
        input=msgspec.json.encode(task),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=work,
        check=False,
    )
    said = done.stdout.decode(errors="backslashreplace")[-_KEPT:]
    return f"killed by signal {-done.returncode}: {said}" if done.returncode < 0 else said
