"""What the compiler's process does: read, import, compile, run the canary, write the plan.

The other end is `trivet.plans.backends.iree_compiler`. Nothing here runs in a serving process.
"""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

from trivet.errors import BackendError
from trivet.plans.backends.child import load_arrays, save_arrays, serve
from trivet.plans.backends.iree_compiler import Done, Job
from trivet.plans.backends.iree_executable import (
    FUNCTION,
    IreeExecutable,
    load_runtime,
    refuse_types,
)
from trivet.plans.backends.iree_onnx import read_model, signature
from trivet.plans.canary import expected_of
from trivet.plans.model import TensorInfo


def main() -> None:
    """Do one `Job`."""
    serve(Job, _work)


def _work(job: Job) -> Done:
    start = time.perf_counter()
    model = read_model(Path(job.model), job.shapes)
    model.graph.name = FUNCTION
    inputs, outputs = signature(model)
    refuse_types((*inputs, *outputs))
    program = _import(model)
    del model  # its weights are in the program now
    compiled = _compile(program, job.flags)
    seconds = time.perf_counter() - start
    ran = bool(job.canary) and _run_canary(job, compiled, inputs, outputs)
    view = compiled.map_memory()
    with open(job.plan, "wb") as file:
        file.write(view)
    return Done(
        inputs=tuple(inputs), outputs=tuple(outputs), size=len(view), seconds=seconds, ran=ran
    )


def _import(model: Any) -> bytes:
    """The model as IREE's bytecode."""
    from iree.compiler.extras import onnx_importer

    try:
        info = onnx_importer.ModelInfo(model)
        operation = info.create_module().operation
        onnx_importer.NodeImporter.define_function(info.main_graph, operation).import_all()
        operation.verify()
    except (MemoryError, OSError):
        raise
    except Exception as error:
        raise BackendError(f"IREE can't import the model: {error}") from error
    # A module that shares its context with the compiler's session crashes it (seen in 3.13), now
    # when it is compiled and now when it is freed. Bytes share nothing.
    buffer = io.BytesIO()
    operation.write_bytecode(buffer)
    return buffer.getvalue()


def _compile(program: bytes, flags: tuple[str, ...]) -> Any:
    """The compiled program, in memory of the compiler."""
    from iree.compiler.api import Output, Session, Source

    session = Session()
    try:
        session.set_flags(*flags)
    except ValueError as error:
        raise BackendError(f"IREE refuses the flags: {error}") from error
    invocation = session.invocation()
    invocation.enable_console_diagnostics()
    source = Source.wrap_buffer(session, program)
    if not invocation.parse_source(source) or not invocation.execute():
        raise BackendError("IREE can't compile the model")
    compiled = Output.open_membuffer()
    invocation.output_vm_bytecode(compiled)
    _kept.append((session, invocation, source))
    return compiled


_kept: list[object] = []  # what a compiled program needs and does not hold


def _run_canary(
    job: Job, compiled: Any, inputs: list[TensorInfo], outputs: list[TensorInfo]
) -> bool:
    """Write what the program gives for the canary; False when it does not take it."""
    runtime = load_runtime()
    plan = IreeExecutable(
        "local-task",
        lambda instance: runtime.VmModule.copy_buffer(instance, compiled.map_memory()),
        inputs,
        outputs,
    )
    results = expected_of(plan, load_arrays(Path(job.canary)))
    if results is None:
        return False
    save_arrays(Path(job.expected), results)
    return True
