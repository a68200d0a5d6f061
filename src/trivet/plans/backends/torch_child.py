"""The process that compiles: started by the PyTorch backend, one for each plan.

Inductor reads settings that anybody in a process may have changed, starts workers, and writes into
a cache that all share. A process of its own has the settings that are in the key and a folder for
itself, and leaves nothing of Dynamo and Inductor in the process that serves.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from trivet.errors import BackendError, TrivetError
from trivet.plans.backends.child import serve
from trivet.plans.backends.compiling import Done, Job, canary_of, keep_expected
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
from trivet.plans.graph.torch_export import read_signature
from trivet.plans.host import read_host
from trivet.plans.model import Dimension


def main() -> None:
    """Do one `Job`, in whose folder for temporary files this process runs."""
    # Some lowerings are others where CI is set; a plan from there is meant for elsewhere.
    os.environ.pop("CI", None)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TRITON_CACHE_DIR"] = os.getcwd()
    serve(Job, _work)


def _work(job: Job) -> Done:
    start = time.perf_counter()
    try:
        detail = _compile(job)
    except (MemoryError, OSError, TrivetError):
        raise
    except Exception as error:
        cause = error.__cause__ or error
        text = str(error) or str(cause)
        raise BackendError(f"{type(error).__qualname__}: {text}") from error
    return Done(detail=detail, seconds=time.perf_counter() - start)


def _compile(job: Job) -> dict[str, object]:
    """Compile as the job says; returns `Built.detail`. Raises whatever PyTorch raises."""
    import torch
    import torch._inductor

    torch.set_num_threads(job.options["threads"])
    register(torch, [Path(each) for each in job.options["custom_ops"]])
    contracts = schemas(torch, job.options["operators"])
    inputs, outputs = read_signature(Path(job.model))
    program = load_program(Path(job.model))
    sizes = sizes_of(inputs, job.shapes)
    program = narrowed(program, inputs, sizes)
    inputs = tuple(msgspec.structs.replace(e, shape=_fixed(e.shape, sizes)) for e in inputs)
    outputs = tuple(msgspec.structs.replace(e, shape=_fixed(e.shape, sizes)) for e in outputs)
    model_itself = uncompiled(program, inputs, outputs)
    ran = keep_expected(job, model_itself)
    package, folder = Path("package.pt2").absolute(), Path(job.folder)
    torch._inductor.aoti_compile_and_package(
        program, package_path=str(package), inductor_configs=_settings(job)
    )
    unpack(package, folder)
    if ran:
        require_free_of_weights(torch, folder, program, model_itself, canary_of(job) or {})
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


def _settings(job: Job) -> dict[str, object]:
    return {
        **job.options["settings"],
        **WEIGHTS_OUTSIDE,
        **PRIVATE_FOLDER,
        "cpp.threads": job.options["threads"],
    }


def _fixed(shape: tuple[Dimension, ...] | None, sizes: dict[str, int]) -> tuple[Dimension, ...]:
    return tuple(sizes.get(e, e) if isinstance(e, str) else e for e in shape or ())
