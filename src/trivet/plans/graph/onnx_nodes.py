"""Nodes of an ONNX file. A model may have thousands, so what one of them costs matters."""

from __future__ import annotations

from trivet.plans.graph.files import Reader
from trivet.plans.graph.wire import BYTES, Field, fail, fields, tag

_INPUT, _OUTPUT, _NAME, _OPERATOR = tag(1, BYTES), tag(2, BYTES), tag(3, BYTES), tag(4, BYTES)
_DOC, _DOMAIN, _OVERLOAD, _METADATA = tag(6, BYTES), tag(7, BYTES), tag(8, BYTES), tag(9, BYTES)
ATTRIBUTE_FIELD = tag(5, BYTES)

_MAX_FIELDS = 1 << 20  # of one node
_MAX_NODE = 2 * _MAX_FIELDS  # bytes; a smaller one can't have more fields

Kind = tuple[bytes, bytes, bytes]  # domain, operator, overload
Node = tuple[Kind, bytes, list[bytes], list[bytes], list[Field]]


def read_node(reader: Reader, start: int, end: int) -> Node:
    """The ``NodeProto`` in a range of the file: kind, name, inputs, outputs, and fields of any
    other sort, attributes among them. Documentation is left out."""
    inputs: list[bytes] = []
    outputs: list[bytes] = []
    rest: list[Field] = []
    name = operator = b""
    data, base, last = reader.window(start)
    i = start - base
    stop = (end if end < last else last) - base
    # What most nodes have comes first, and is short.
    while i + 1 < stop:
        key = data[i]
        size = data[i + 1]
        first = i + 2
        after = first + size
        if size > 127 or after > stop:
            break
        if key == _INPUT:
            inputs.append(data[first:after])
        elif key == _OUTPUT:
            outputs.append(data[first:after])
        elif key == _NAME:
            name = data[first:after]
        elif key == _OPERATOR:
            operator = data[first:after]
        elif key == ATTRIBUTE_FIELD:
            rest.append((key, base + first, base + after))
        else:
            break
        i = after
    node = (b"", operator, b""), name, inputs, outputs, rest
    return node if base + i == end else _read_on(reader, base + i, end, node)


def _read_on(reader: Reader, start: int, end: int, node: Node) -> Node:
    """The node with the rest of its fields, however long and however odd."""
    if end - start > _MAX_NODE:
        _check_size(reader, start, end)
    (domain, operator, overload), name, inputs, outputs, rest = node
    read = reader.read
    for field in fields(reader, start, end):
        key, first, last = field
        if key == _INPUT:
            inputs.append(read(first, last))
        elif key == _OUTPUT:
            outputs.append(read(first, last))
        elif key == _NAME:
            name = read(first, last)
        elif key == _OPERATOR:
            operator = read(first, last)
        elif key == _DOMAIN:
            domain = read(first, last)
        elif key == _OVERLOAD:
            overload = read(first, last)
        elif key not in (_DOC, _METADATA):
            rest.append(field)
    return (domain, operator, overload), name, inputs, outputs, rest


def _check_size(reader: Reader, start: int, end: int) -> None:
    """A large node may hold large tensors, but not so many fields that memory runs out."""
    if sum(1 for _ in fields(reader, start, end)) > _MAX_FIELDS:
        fail(reader, start, f"a node with more than {_MAX_FIELDS} fields")
