"""Programs that ``jax.export`` wrote: identity and signature, without JAX.

The file is a FlatBuffer; numbers of fields are those of ``jax/_src/export/serialization.fbs`` (as
generated in jax 0.10, version 11 of the format; fields are only ever added). What the program
computes is StableHLO, which is not read: the file counts as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from blake3 import blake3

from trivet.errors import ModelError
from trivet.plans.graph.files import Files, Reader
from trivet.plans.model import Dimension, GraphId, TensorInfo

# Fields of a table, by their place in its table of offsets.
_IN_TREE, _OUT_TREE, _UNIQUE_AVALS, _IN_AVALS, _OUT_AVALS = 8, 12, 42, 48, 50
_AVAL_SHAPE, _AVAL_DTYPE = 6, 8
_NODE_KIND, _NODE_CHILDREN, _NODE_NAMES = 4, 6, 8
_LEAF, _NONE, _TUPLE, _LIST, _DICT, _CUSTOM = range(6)

_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16", "int4", "uint4"),
    *("float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float0", "float8_e4m3", "float8_e3m4", "float8_e8m0fnu", "float4_e2m1fn"),
    *("key<fry>", "key<rbg>", "key<unsafe_rbg>"),
)
_MOST = 1 << 20  # nodes, dimensions, tensors: more is not a program but damage
_DEEPEST = 64


def identify_jax(files: Files) -> GraphId:
    """The exported program in ``files.main``.

    Inputs are named by where they stand among the arguments: ``arg0``, ``arg1.params.w``, and
    arguments given by keyword by their names. Outputs: ``out``, or ``out0``, ``out1.logits``.

    Raises `ModelError`.
    """
    reader = files.main
    try:
        inputs, outputs = _signature(reader)
    except (struct.error, UnicodeDecodeError) as error:
        raise ModelError(f"is not a jax.export program: {error}") from error
    whole = reader.digest(0, reader.size)
    return GraphId(
        format="jax-export",
        structure=blake3(whole, derive_key_context="trivet 2026 jax export v1").digest(),
        weights=blake3(b"").digest(),  # inside the program, or arguments
        metadata=blake3(b"").digest(),
        inputs=inputs,
        outputs=outputs,
        operators=(),
        sources=tuple(files.sources.values()),
    )


def _signature(reader: Reader) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    root = _Table(reader, _number(reader, 0, "I"))
    avals = list(root.tables(_UNIQUE_AVALS))
    if not avals and (root.at(10) or root.at(14)):
        raise ModelError("was exported by a version of JAX before 0.10", hint="export it again")
    sides = []
    for tree, indices, name in (
        (_IN_TREE, _IN_AVALS, _argument),
        (_OUT_TREE, _OUT_AVALS, _result),
    ):
        paths = [name(path) for path in _leaves(root.table(tree), ())]
        chosen = list(root.numbers(indices))
        if len(paths) != len(chosen) or any(each >= len(avals) for each in chosen):
            raise ModelError("is not a jax.export program: tensors and names don't match")
        if len(set(paths)) != len(paths):
            raise ModelError("has two arguments that go by one name")
        sides.append(
            tuple(_tensor(path, avals[each]) for path, each in zip(paths, chosen, strict=True))
        )
    return sides[0], sides[1]


def _argument(path: tuple[str, ...]) -> str:
    """``path`` begins with 0 for positional arguments or 1 for those given by keyword."""
    if len(path) < 2:
        raise ModelError("is not a jax.export program: an argument has no name")
    kind, first, *rest = path
    return ".".join((f"arg{first}" if kind == "0" else first, *rest))


def _result(path: tuple[str, ...]) -> str:
    return (
        ("out" + ".".join(path)) if path[:1] and path[0].isdecimal() else ".".join(("out", *path))
    )


def _tensor(name: str, aval: _Table) -> TensorInfo:
    dtype = aval.number(_AVAL_DTYPE, "b")
    if not 0 <= dtype < len(_DTYPES):
        raise ModelError(f"{name!r} has element type {dtype}, which is not known")
    return TensorInfo(name, _DTYPES[dtype], tuple(map(_size, aval.strings(_AVAL_SHAPE))))


def _size(text: str) -> Dimension:
    return int(text) if text.isdecimal() else text


def _leaves(node: _Table, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The path of every leaf, in JAX's order."""
    if len(path) > _DEEPEST:
        raise ModelError("is not a jax.export program: its arguments are nested too deeply")
    kind = node.number(_NODE_KIND, "b")
    if kind == _LEAF:
        yield path
    elif kind in (_TUPLE, _LIST, _CUSTOM):
        for index, child in enumerate(node.tables(_NODE_CHILDREN)):
            yield from _leaves(child, (*path, str(index)))
    elif kind == _DICT:
        names, children = list(node.strings(_NODE_NAMES)), list(node.tables(_NODE_CHILDREN))
        if len(names) != len(children):
            raise ModelError("is not a jax.export program: names and arguments don't match")
        for name, child in zip(names, children, strict=True):
            yield from _leaves(child, (*path, name))
    elif kind != _NONE:
        raise ModelError(f"has a container of kind {kind}, which is not known")


class _Table:
    """One table of a FlatBuffer."""

    def __init__(self, reader: Reader, position: int) -> None:
        self._reader = reader
        self._position = position
        self._offsets = position - _number(reader, position, "i")
        self._size = _number(reader, self._offsets, "H")

    def at(self, field: int) -> int:
        """Where the field is; 0 if it is left out."""
        if field + 2 > self._size:
            return 0
        offset = _number(self._reader, self._offsets + field, "H")
        return self._position + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        place = self.at(field)
        return _number(self._reader, place, form) if place else 0

    def table(self, field: int) -> _Table:
        place = self.at(field)
        if not place:
            raise ModelError("is not a jax.export program: a part is missing")
        return _Table(self._reader, self._follow(place))

    def tables(self, field: int) -> Iterator[_Table]:
        for place in self._elements(field):
            yield _Table(self._reader, self._follow(place))

    def numbers(self, field: int) -> Iterator[int]:
        for place in self._elements(field):
            yield _number(self._reader, place, "I")

    def strings(self, field: int) -> Iterator[str]:
        for place in self._elements(field):
            start = self._follow(place)
            size = _number(self._reader, start, "I")
            yield _bytes(self._reader, start + 4, size).decode()

    def _elements(self, field: int) -> Iterator[int]:
        """Places of a vector's elements, which are four bytes each."""
        place = self.at(field)
        if not place:
            return
        start = self._follow(place)
        count = _number(self._reader, start, "I")
        if count > _MOST:
            raise ModelError(f"is not a jax.export program: {count} elements")
        for index in range(count):
            yield start + 4 + 4 * index

    def _follow(self, place: int) -> int:
        return place + _number(self._reader, place, "I")


def _number(reader: Reader, place: int, form: str) -> int:
    size = struct.calcsize(form)
    return int(struct.unpack("<" + form, _bytes(reader, place, size))[0])


def _bytes(reader: Reader, start: int, size: int) -> bytes:
    if start < 0 or start + size > reader.size:
        raise ModelError(f"is not a jax.export program: nothing at byte {start}")
    data, first, _ = reader.window(start, size)
    return bytes(data[start - first : start - first + size])
