"""Value infos of an ONNX file: name, type as it stands, and what callers want to know of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trivet.plans.graph.dtypes import onnx_name
from trivet.plans.graph.files import Reader
from trivet.plans.graph.tensors import decode
from trivet.plans.graph.wire import BYTES, VARINT, Field, fail, fields, tag
from trivet.plans.model import Dimension, TensorInfo

Span = tuple[int, int]

_NAME, _TYPE, _DOC, _METADATA = tag(1, BYTES), tag(2, BYTES), tag(3, BYTES), tag(4, BYTES)
_TENSOR = tag(1, BYTES)
_OTHER_TYPES = {4: "sequence", 5: "map", 7: "opaque", 8: "sparse_tensor", 9: "optional"}


class ValueInfo(NamedTuple):
    """A ``ValueInfoProto``: ``type`` is the range of its ``TypeProto``, empty when absent."""

    name: bytes
    type: Span
    unknown: list[Field]


def read_value_info(reader: Reader, start: int, end: int) -> ValueInfo:
    """The value info in a range of the file."""
    name, type_, unknown = b"", (start, start), []
    for key, first, last in fields(reader, start, end):
        if key == _NAME:
            name = reader.read(first, last)
        elif key == _TYPE:
            if type_ != (start, start):
                fail(reader, first, "a value has two types")
            type_ = first, last
        elif key not in (_DOC, _METADATA):
            unknown.append((key, first, last))
    return ValueInfo(name, type_, unknown)


def tensor_info(reader: Reader, value: ValueInfo) -> TensorInfo:
    """Name, element type and shape. A value that is no tensor has the kind of its type as dtype."""
    try:
        name = value.name.decode()
    except UnicodeDecodeError:
        fail(reader, value.type[0], "the name of an input or output is not UTF-8")
    tensor = _only(reader, value.type, _TENSOR)
    if tensor is None:
        kinds = [key >> 3 for key, _, _ in fields(reader, *value.type)]
        kind = next((_OTHER_TYPES[each] for each in kinds if each in _OTHER_TYPES), "undefined")
        return TensorInfo(name, kind, None)
    dtype = 0
    for key, first, _ in fields(reader, *tensor):
        if key == tag(1, VARINT):
            dtype = first
    shape = _only(reader, tensor, tag(2, BYTES))
    dims = None if shape is None else tuple(_dimensions(reader, shape))
    return TensorInfo(name, onnx_name(dtype), dims)


def _dimensions(reader: Reader, shape: Span) -> Iterator[Dimension]:
    for key, start, end in fields(reader, *shape):
        if key != tag(1, BYTES):
            continue
        size: Dimension = None
        for inner, first, last in fields(reader, start, end):
            if inner == tag(1, VARINT):
                size = first if first < 1 << 63 else None  # exporters write -1 for "any"
            elif inner == tag(2, BYTES):
                size = decode(reader, first, last) or None
        yield size


def _only(reader: Reader, span: Span, key: int) -> Span | None:
    """The range of a message field that must not occur twice."""
    found = [(first, last) for each, first, last in fields(reader, *span) if each == key]
    if len(found) > 1:
        fail(reader, span[0], f"a type has its field {key >> 3} twice")
    return found[0] if found else None
