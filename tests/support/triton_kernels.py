"""Compiles a kernel under `TritonKernels`, and says what came of it.

Arguments: the folder of the cache, and compute capabilities such as 80.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"  # its default is about to change, and Triton warns

import triton
import triton.language as tl
from tests.support import triton_constants as constants
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from trivet import Cache
from trivet.plans.backends import TritonKernels


# Triton reads annotations as types of its own.
@triton.jit
def scaled(x):  # type: ignore[no-untyped-def]
    return x * 2.0


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    value = scaled(tl.load(x + index, inside)) + tl.load(y + index, inside)
    tl.store(out + index, value, inside)


@triton.constexpr_function
def number():  # type: ignore[no-untyped-def]
    return constants.NUMBER


@triton.jit
def takes(out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    index = tl.arange(0, BLOCK)
    value = constants.shifted(index) * constants.SCALE + number()
    tl.store(out + index, value.to(constants.KIND))


def takes_source() -> ASTSource:
    return ASTSource(takes, {"out": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 32})


def source(block: int = 128, pointer: str = "*fp32") -> ASTSource:
    signature = {"x": pointer, "y": pointer, "out": pointer, "n": "i32", "BLOCK": "constexpr"}
    return ASTSource(add, signature, {"BLOCK": block})


def compiled(capability: int, **options: Any) -> dict[str, Any]:
    """What Triton's own listener says of one compilation, and what came out."""
    hits: list[bool] = []
    triton.knobs.compilation.listener = lambda cache_hit, **_: hits.append(cache_hit)
    kernel = triton.compile(source(), target=GPUTarget("cuda", capability, 32), options=options)
    return {
        "hit": hits[0],
        "cubin": kernel.asm["cubin"].hex(),
        "ptx": kernel.asm["ptx"],
        "paths": {name: str(path) for name, path in kernel.metadata_group.items()},
    }


def main() -> None:
    with Cache.open(Path(sys.argv[1])) as cache, TritonKernels(cache):
        print(json.dumps([compiled(int(each)) for each in sys.argv[2:]]))


if __name__ == "__main__":
    main()
