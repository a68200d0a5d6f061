"""A stand-in for ``cuda.bindings.runtime``: memory of the host, and errors given first."""

from __future__ import annotations

import ctypes
import enum

cudaError_t = enum.Enum("cudaError_t", ["cudaSuccess", "cudaErrorMemoryAllocation"], start=0)  # noqa: N816
cudaMemcpyKind = enum.Enum("cudaMemcpyKind", ["cudaMemcpyHostToDevice", "cudaMemcpyDeviceToHost"])  # noqa: N816
_OK = cudaError_t.cudaSuccess
_held: dict[int, object] = {}


def cudaMalloc(size: int) -> tuple[object, int | None]:  # noqa: N802
    if size > 1 << 32:
        return cudaError_t.cudaErrorMemoryAllocation, None
    buffer = ctypes.create_string_buffer(size)
    _held[ctypes.addressof(buffer)] = buffer
    return _OK, ctypes.addressof(buffer)


def cudaFree(devPtr: int) -> tuple[object]:  # noqa: N802, N803
    del _held[devPtr]
    return (_OK,)


def cudaMemcpyAsync(dst: int, src: int, count: int, kind: object, stream: int) -> tuple[object]:  # noqa: N802
    ctypes.memmove(dst, src, count)
    return (_OK,)


def cudaStreamCreate() -> tuple[object, int]:  # noqa: N802
    return _OK, 7


def cudaStreamSynchronize(stream: int) -> tuple[object]:  # noqa: N802
    return (_OK,)
