"""The process that compiles: started by the PyTorch backend, one for each plan.

Inductor reads settings that anybody in a process may have changed, starts workers, and writes into
a cache that all share. A process of its own has the settings that are in the key and a folder for
itself, and leaves nothing of Dynamo and Inductor in the process that serves.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trivet.plans.backends.torch_operators import register, schemas
from trivet.plans.backends.torch_options import PRIVATE_FOLDER, WEIGHTS_OUTSIDE
from trivet.plans.backends.torch_other_weights import require_free_of_weights
from trivet.plans.backends.torch_package import LIBRARY, calls_size, package_isa, unpack
from trivet.plans.backends.torch_program import (
    bounds_of,
    load_program,
    narrowed,
    sizes_of,
    uncompiled,
)
from trivet.plans.canary import expected_of
from trivet.plans.graph.torch_export import read_signature
from trivet.plans.host import read_host
from trivet.plans.model import Dimension

if TYPE_CHECKING:
    from trivet.plans.model import Arrays


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What to compile. Paths are absolute.

    Attributes:
        package: a file to use for the package, which ends in ``.pt2``. folder: where the plan goes.
        canary: an ``.npz`` file of inputs, or empty. expected: where to write their outputs.
        settings: of Inductor.
    """

    model: str
    package: str
    folder: str
    canary: str
    expected: str
    settings: dict[str, bool | int | float]
    threads: int
    operators: tuple[str, ...]
    custom_ops: tuple[str, ...]
    shapes: dict[str, tuple[Dimension, ...]]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: a plan's detail, or an error."""

    detail: dict[str, object] = {}
    error: str = ""
    text: str = ""


def compile_package(task: Task) -> dict[str, object]:
    """Compile as the task says; returns `Built.detail`. Raises whatever PyTorch raises."""
    import torch
    import torch._inductor

    torch.set_num_threads(task.threads)
    register(torch, [Path(each) for each in task.custom_ops])
    contracts = schemas(torch, task.operators)
    inputs, outputs = read_signature(Path(task.model))
    program = load_program(Path(task.model))
    sizes = sizes_of(inputs, task.shapes)
    program = narrowed(program, inputs, sizes)
    inputs = tuple(msgspec.structs.replace(e, shape=_fixed(e.shape, sizes)) for e in inputs)
    outputs = tuple(msgspec.structs.replace(e, shape=_fixed(e.shape, sizes)) for e in outputs)
    model_itself = uncompiled(program, inputs, outputs)
    expected = _keep_expected(task, model_itself)
    torch._inductor.aoti_compile_and_package(
        program, package_path=task.package, inductor_configs=_settings(task)
    )
    folder = Path(task.folder)
    unpack(Path(task.package), folder)
    if expected is not None:
        require_free_of_weights(torch, folder, program, model_itself, _canary(task) or {})
    return {
        "inputs": msgspec.to_builtins(inputs),
        "outputs": msgspec.to_builtins(outputs),
        "bounds": bounds_of(program),
        "isa": package_isa(folder),
        "instruction_set": read_host({}).instruction_set,
        "operators": contracts,
        "calls": calls_size(folder),
        "size": (folder / LIBRARY).stat().st_size,
    }


def _settings(task: Task) -> dict[str, object]:
    return {**task.settings, **WEIGHTS_OUTSIDE, **PRIVATE_FOLDER, "cpp.threads": task.threads}


def _fixed(shape: tuple[Dimension, ...] | None, sizes: dict[str, int]) -> tuple[Dimension, ...]:
    return tuple(sizes.get(e, e) if isinstance(e, str) else e for e in shape or ())


def _keep_expected(task: Task, model: Any) -> Arrays | None:
    import numpy as np

    found = expected_of(model, _canary(task))
    if found is not None:
        np.savez(task.expected, **found)  # type: ignore[arg-type]
    return found


def _canary(task: Task) -> Arrays | None:
    import numpy as np

    if not task.canary:
        return None
    with np.load(task.canary, allow_pickle=False) as stored:
        return dict(stored)


def main() -> None:
    """Read a `Task` from standard input, write the `Answer` to the file named as argument."""
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    try:
        answer = Answer(detail=compile_package(task))
    except Exception as error:  # noqa: BLE001  the other process raises it again
        cause = error.__cause__ or error
        answer = Answer(error=type(error).__qualname__, text=f"{error}" or f"{cause}")
    place = Path(sys.argv[1])
    place.with_suffix(".part").write_text(json.dumps(msgspec.to_builtins(answer)))
    os.replace(place.with_suffix(".part"), place)


if __name__ == "__main__":
    main()
