"""Tensors of an ONNX file that are written as most are: shape, type, a name, elements in raw form.

Models have thousands of them, in few shapes. What the bytes of a shape mean is found out once.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import NamedTuple

from trivet.plans.graph.dtypes import ONNX, RAW
from trivet.plans.graph.files import MARGIN, Reader
from trivet.plans.graph.wire import BYTES, VARINT, few_fields, tag

_DIM, _DTYPE, _NAME, _RAW = tag(1, VARINT), tag(2, VARINT), tag(8, BYTES), tag(RAW, BYTES)
_INTEGERS = {6, 7, 12, 13, 8, 9}  # what shapes, axes and conditions are made of
_SMALL = 1 << 10
_MAX_HEAD = 64  # bytes that say shape and type
_MAX_SIZE = 1 << 40


class Tensor(NamedTuple):
    """A tensor as far as identity goes.

    Attributes:
        name: of an initialiser.
        kind: element type, size, shape; the digest of a small integer tensor (a shape, an axis),
            which structure depends on; and the digest of what is unusual or unknown about it.
        content: BLAKE3 over the elements in raw form (little-endian).
        opaque: has fields that this version does not know.
    """

    name: bytes
    kind: bytes
    content: bytes
    opaque: bool


# There are many, and this takes half the time of the class.
_tensor = functools.partial(tuple.__new__, Tensor)


def plain_tensor(reader: Reader, start: int, end: int) -> Tensor | None:
    """The tensor whose ``TensorProto`` lies in a range of the file; None if it is not so plain."""
    data, base, _ = reader.window(start)
    i = start - base
    at = data.find(_NAME, i, i + _MAX_HEAD)
    if at < 0 or at + MARGIN > len(data):
        return None
    shape = _shape(data[i:at])
    if shape is None:
        return None
    kind, size, head, counts = shape
    length = data[at + 1]
    last = at + 2 + length
    first = last + len(head)
    if data[last:first] != head or base + first + size != end or length > 127:
        return None
    content = reader.digest(base + first, end)
    return _tensor((data[at + 2 : last], kind + content if counts else kind, content, False))


class _Shape(NamedTuple):
    """A shape and a type.

    Attributes:
        kind: as in `Tensor`, without the content.
        size: of the elements in raw form, in bytes.
        head: of the field that holds them.
        counts: whether the content is part of the kind.
    """

    kind: bytes
    size: int
    head: bytes
    counts: bool


@functools.lru_cache(1024)
def _shape(found: bytes) -> _Shape | None:
    """Shape and type by the bytes of their fields; None unless these are just such fields."""
    dims: list[int] = []
    dtype = 0
    for key, value, _ in few_fields(found + bytes(MARGIN), 0, len(found)) or ():
        if key == _DIM:
            dims.append(value)
        elif key == _DTYPE:
            dtype = value
        else:
            return None
    known = ONNX.get(dtype)
    if known is None or not known.bits or known.bits % 8:
        return None
    size = math.prod(dims) * known.bits // 8
    if size >= _MAX_SIZE:
        return None
    head = bytearray([_RAW])
    rest = size
    while rest > 127:
        head.append(rest & 127 | 128)
        rest >>= 7
    head.append(rest)
    return _Shape(kind_of(dtype, size, dims), size, bytes(head), is_integers(dtype, size))


def kind_of(dtype: int, size: int, dims: list[int]) -> bytes:
    """What `Tensor.kind` begins with."""
    rank = len(dims)
    return struct.pack(f"<QQI{rank}Q", dtype, size, rank, *dims)


def is_integers(dtype: int, size: int) -> bool:
    """Whether a tensor may be a shape, an axis or the like."""
    return size <= _SMALL and dtype in _INTEGERS
