"""A codec for named NumPy arrays that runs no code when it decodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np

# NumPy's type string to bytes per element. A closed list: NumPy's own parser of type strings also
# accepts structures, objects and Python literals, and long double differs between machines.
_ITEM_SIZES = {
    "|b1": 1, "|i1": 1, "|u1": 1, "<i2": 2, "<u2": 2, "<i4": 4, "<u4": 4, "<i8": 8, "<u8": 8,
    "<f2": 2, "<f4": 4, "<f8": 8, "<c8": 8, "<c16": 16,
}  # fmt: skip
_MAX_RANK = 32  # NumPy 1's limit
_Length = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]


class _Array(msgspec.Struct, frozen=True, array_like=True):
    name: str
    dtype: str
    shape: Annotated[tuple[_Length, ...], msgspec.Meta(max_length=_MAX_RANK)]
    data: memoryview


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Array]).decode


def item_size(dtype: str) -> int:
    """Bytes of an element of ``dtype``, as NumPy writes it. Raises ValueError for other than
    numbers and booleans."""
    try:
        return _ITEM_SIZES[dtype]
    except KeyError:
        raise ValueError(f"elements of type {dtype!r} can't be kept") from None


class Arrays:
    """A mapping of names to arrays of numbers or booleans, in order.

    Object, string, structured and long double arrays are refused: they have no fixed byte form; and
    subclasses, such as masked arrays and `numpy.matrix`: they mean more than their numbers.
    Big-endian arrays come back little-endian. The decoded mapping and its arrays are read-only: one
    decoded value may be handed to many callers.
    """

    id = "arrays/1"
    shareable = True

    def encode(self, value: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
        """Raises TypeError for what is not an array whose elements are numbers or booleans."""
        import numpy as np

        rows = []
        for name, each in value.items():
            if not isinstance(name, str):
                raise TypeError(f"an array's name is a string, got {name!r}")
            if type(each) not in (np.ndarray, np.memmap):  # subclasses mean more than their bytes
                raise TypeError(f"{name!r} is not an array but a {type(each).__name__}")
            dtype = each.dtype.newbyteorder("<")
            if dtype.str not in _ITEM_SIZES or each.ndim > _MAX_RANK:
                raise TypeError(f"array {name!r} of {each.dtype}, rank {each.ndim}, can't be kept")
            flat = np.ascontiguousarray(each, dtype=dtype).reshape(-1).view(np.uint8)
            rows.append(_Array(name, dtype.str, each.shape, flat.data))
        return _encode(rows)

    def decode(self, raw: memoryview) -> Mapping[str, np.ndarray[Any, Any]]:
        """Raises ValueError when the bytes don't describe arrays."""
        import numpy as np

        rows = _decode(raw)
        for each in rows:
            if math.prod(each.shape) * item_size(each.dtype) != len(each.data):
                raise ValueError(f"array {each.name!r} has other bytes than its shape needs")
        arrays = {
            each.name: np.frombuffer(bytes(each.data), each.dtype).reshape(each.shape)
            for each in rows
        }
        if len(arrays) != len(rows):
            raise ValueError("two arrays have the same name")
        return MappingProxyType(arrays)
