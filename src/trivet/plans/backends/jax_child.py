"""What the process that compiles for the JAX backend is asked for, and does.

A process of its own, so that no setting made in the caller's JAX enters a plan: the key names the
environment and the options, and the settings of a fresh process follow from these.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec

from trivet.errors import BackendError, ShapeError
from trivet.plans.backends.child import serve
from trivet.plans.backends.compiling import Done, Job, keep_expected
from trivet.plans.host import read_host
from trivet.plans.model import TensorInfo


def main() -> None:
    """Do one `Job`."""
    serve(Job, _work)


def _work(job: Job) -> Done:
    from trivet.plans.backends.jax_program import (
        PLAN_FILE,
        JaxExecutable,
        Program,
        executes,
        load_jax,
    )

    jax = load_jax()
    start = time.perf_counter()
    program = Program(Path(job.model))
    inputs = program.sized(job.shapes)
    compiled = _compile(jax, program, inputs, job.options)
    executable = compiled.runtime_executable()
    outputs = tuple(
        TensorInfo(each.name, each.dtype, tuple(found.shape))
        for each, found in zip(program.outputs, compiled.out_info, strict=True)
    )
    seconds = time.perf_counter() - start

    keep_expected(
        job, JaxExecutable(executes(executable, len(outputs)), executable, inputs, outputs)
    )
    try:
        plan = executable.serialize()
    except jax.errors.JaxRuntimeError as error:  # such as of a sort by a comparison of XLA's own
        raise BackendError(f"XLA can't write the plan down: {error}") from error
    (Path(job.folder) / PLAN_FILE).write_bytes(plan)
    detail = {
        "inputs": msgspec.to_builtins(inputs),
        "outputs": msgspec.to_builtins(outputs),
        "size": len(plan),
        "instruction_set": read_host(os.environ).instruction_set,
    }
    return Done(detail=detail, seconds=seconds)


def _compile(
    jax: Any,
    program: Any,
    inputs: tuple[TensorInfo, ...],
    options: dict[str, str | int | float | bool],
) -> Any:
    import numpy as np

    specs = [jax.ShapeDtypeStruct(each.shape, np.dtype(each.dtype)) for each in inputs]
    # Unused arguments are kept, so that plans take what the program does.
    try:
        lowered = jax.jit(program.call, keep_unused=True).lower(*specs)
    except ValueError as error:
        raise ShapeError(f"the sizes don't fit the program: {error}") from error
    try:
        return lowered.compile(compiler_options=options or None)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        raise BackendError(f"XLA can't compile the program: {error}") from error
