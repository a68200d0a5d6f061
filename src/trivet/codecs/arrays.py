"""A codec for named NumPy arrays that runs no code when it decodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np

_KINDS = "biufc?"


class _Array(msgspec.Struct, frozen=True, array_like=True):
    name: str
    dtype: str  # NumPy's little-endian type string, such as "<f4"
    shape: tuple[int, ...]
    data: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Array]).decode


class Arrays:
    """A mapping of names to arrays of numbers or booleans, in order.

    Object, string and structured arrays are refused: they have no fixed byte form. Decoded arrays
    are read-only: one decoded array may be handed to many callers.
    """

    id = "arrays/1"
    shareable = True

    def encode(self, value: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
        """Raises TypeError for an array whose elements are not numbers or booleans."""
        import numpy as np

        rows = []
        for name, each in value.items():
            if each.dtype.kind not in _KINDS or each.dtype.hasobject:
                raise TypeError(f"array {name!r} has elements of type {each.dtype}, not numbers")
            plain = np.ascontiguousarray(each, dtype=each.dtype.newbyteorder("<"))
            rows.append(_Array(name, plain.dtype.str, each.shape, plain.tobytes()))
        return _encode(rows)

    def decode(self, raw: memoryview) -> dict[str, np.ndarray[Any, Any]]:
        """Raises ValueError when the bytes don't describe arrays."""
        import numpy as np

        arrays = {}
        for each in _decode(raw):
            dtype = np.dtype(each.dtype)
            if dtype.kind not in _KINDS or dtype.hasobject:
                raise ValueError(f"array {each.name!r} has elements of type {dtype}, not numbers")
            arrays[each.name] = np.frombuffer(each.data, dtype).reshape(each.shape)
        return arrays
