"""A codec for whatever plain values a function returns, which come back as what they were."""

from __future__ import annotations

import sys
import types
from typing import Any

import msgspec

from trivet.codecs.arrays import item_size

_TUPLE, _SET, _FROZENSET, _DICT, _INT, _COMPLEX, _ARRAY, _SCALAR, _TENSOR = range(1, 10)
_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 64) - 1
_PLAIN = frozenset({type(None), bool, float, str, bytes})
_READ_ONCE: dict[type, str] = {
    types.GeneratorType: "a list of what it yields",
    types.AsyncGeneratorType: "a list of what it yields",
    types.CoroutineType: "what it returns, or memoise the coroutine function itself",
}
_encode = msgspec.msgpack.Encoder().encode
_Ext = msgspec.msgpack.Ext
_Numbers = tuple[str, tuple[int, ...], memoryview]
_read_numbers = msgspec.msgpack.Decoder(_Numbers).decode


class Values:
    """None, booleans, numbers, text, bytes, lists, tuples, sets and dicts of them, NumPy arrays and
    torch tensors, nested as one likes; each comes back as the type it was.

    Other types are refused: give the codec of their type, such as ``MsgPack(Answer)``. Every caller
    gets containers of its own, and what it does to them nobody else sees.

    Args:
        writable: whether a caller may write into the arrays that it gets; each is copied for that.
    """

    id = "values/1"
    shareable = False

    def __init__(self, *, writable: bool = False) -> None:
        self._unpacked = _unpacked_writable if writable else _unpacked

    def encode(self, value: object) -> bytes:
        """Raises TypeError for a type that it doesn't know, ValueError for one nested too deep."""
        try:
            return _encode(_packed(value))
        except RecursionError as error:
            raise ValueError("this value is nested too deep, or holds itself") from error

    def decode_live(self, raw: bytes) -> Any:
        """See `LiveDecoder`. In half the time of `decode`."""
        return self._unpacked(raw)

    def decode(self, raw: memoryview) -> Any:
        """Raises ValueError on other data."""
        try:
            return self._unpacked(raw)
        except (TypeError, RecursionError, OverflowError, ImportError) as error:
            raise ValueError(f"these bytes are no values: {error}") from error


def _packed(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if _LEAST_INT <= value <= _MOST_INT else _Ext(_INT, hex(value).encode())
    if kind is list:
        return value if _PLAIN.issuperset(map(type, value)) else [_packed(each) for each in value]
    if kind is dict:
        if all(type(name) is str for name in value):
            return {name: _packed(each) for name, each in value.items()}
        return _Ext(_DICT, _encode([[_packed(k), _packed(v)] for k, v in value.items()]))
    if kind is complex:
        return _Ext(_COMPLEX, _encode((value.real, value.imag)))
    code = _COLLECTIONS.get(kind)
    if code is not None:
        return _Ext(code, _encode([_packed(each) for each in value]))
    return _packed_numbers(value, kind)


def _packed_numbers(value: Any, kind: type) -> Any:
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and kind in (numpy.ndarray, numpy.memmap):
        return _Ext(_ARRAY, _flat(value, numpy))
    if numpy is not None and isinstance(value, numpy.generic):
        return _Ext(_SCALAR, _flat(value, numpy))
    torch: Any = sys.modules.get("torch")
    if torch is not None and kind is torch.Tensor:
        from trivet.values.adapters.torch import flat

        return _Ext(_TENSOR, _encode(flat(value)))
    if kind in _READ_ONCE:
        raise TypeError(f"a {kind.__name__} can be used only once; return {_READ_ONCE[kind]}")
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise TypeError(f"a {name} is no plain value; give its codec, such as MsgPack({kind.__name__})")


def _flat(value: Any, numpy: Any) -> bytes:
    dtype = value.dtype.newbyteorder("<")
    item_size(dtype.str)
    data = numpy.ascontiguousarray(value, dtype=dtype).reshape(-1).view(numpy.uint8)
    return _encode((dtype.str, value.shape, data.data))


def _unpack(code: int, data: memoryview) -> Any:
    if code in _MAKERS:
        return _MAKERS[code](_unpacked(data))
    if code == _INT:
        return int(bytes(data), 16)
    if code == _COMPLEX:
        real, imaginary = _unpacked(data)
        return complex(real, imaginary)
    if code in (_ARRAY, _SCALAR):
        return _array(code, *_read_numbers(data))
    if code == _TENSOR:
        from trivet.values.adapters.torch import tensor

        return tensor(*_read_numbers(data))
    raise ValueError(f"nothing has the code {code}")


def _unpack_writable(code: int, data: memoryview) -> Any:
    if code in _MAKERS:
        return _MAKERS[code](_unpacked_writable(data))
    found = _unpack(code, data)
    return found.copy() if code == _ARRAY else found


def _array(code: int, dtype: str, shape: tuple[int, ...], data: memoryview) -> Any:
    import numpy as np

    item_size(dtype)
    # A copy: arrays of misaligned bytes are slow, and the bytes are only lent.
    array = np.frombuffer(bytes(data), dtype).reshape(shape)
    return array if code == _ARRAY else array[()]


_COLLECTIONS: dict[type, int] = {tuple: _TUPLE, set: _SET, frozenset: _FROZENSET}
_MAKERS: dict[int, Any] = {_TUPLE: tuple, _SET: set, _FROZENSET: frozenset, _DICT: dict}
_unpacked = msgspec.msgpack.Decoder(ext_hook=_unpack).decode
_unpacked_writable = msgspec.msgpack.Decoder(ext_hook=_unpack_writable).decode
