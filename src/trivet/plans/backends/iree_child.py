"""What the compiler's process does: read, import, compile, run the canary, write the plan.

Nothing here runs in a serving process.
"""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import msgspec

from trivet.errors import BackendError
from trivet.plans.backends.child import serve
from trivet.plans.backends.compiling import Done, Job, keep_expected
from trivet.plans.backends.iree_executable import (
    FUNCTION,
    PLAN_FILE,
    IreeExecutable,
    load_runtime,
    refuse_types,
)
from trivet.plans.backends.iree_onnx import read_model, signature


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
    compiled = _compile(program, job.options["flags"])
    seconds = time.perf_counter() - start
    runtime = load_runtime()
    view = compiled.map_memory()
    keep_expected(
        job,
        IreeExecutable(
            "local-task",
            lambda instance: runtime.VmModule.copy_buffer(instance, view),
            inputs,
            outputs,
        ),
    )
    with open(Path(job.folder) / PLAN_FILE, "wb") as file:
        file.write(view)
    detail = {
        "inputs": msgspec.to_builtins(inputs),
        "outputs": msgspec.to_builtins(outputs),
        "size": len(view),
    }
    return Done(detail=detail, seconds=seconds)


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


def _compile(program: bytes, flags: list[str]) -> Any:
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
