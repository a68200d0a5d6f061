"""Tensors of an ONNX file: shape and type apart from content, whichever way the content is stored.

The same elements have the same digest in raw form, in typed fields and in an external file.
"""

from __future__ import annotations

import contextlib
import sys
from array import array
from collections.abc import Iterator

from blake3 import blake3

from trivet.errors import ModelError
from trivet.plans.graph import dtypes
from trivet.plans.graph.dtypes import FLOATS, INT32S, INT64S, ONNX, RAW, STRINGS, UINT64S
from trivet.plans.graph.files import Files, Reader
from trivet.plans.graph.plain_tensors import Tensor, is_integers, kind_of, plain_tensor
from trivet.plans.graph.tokens import Tokens
from trivet.plans.graph.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    fail,
    fields,
    packed_varints,
    tag,
)

DIMS, DTYPE, NAME, DOC, EXTERNAL, LOCATION, METADATA = 1, 2, 8, 12, 13, 14, 16
_T_DIM, _T_DTYPE, _T_NAME = tag(DIMS, VARINT), tag(DTYPE, VARINT), tag(NAME, BYTES)
_EXTERNAL_LOCATION = 1
_NUMBERS = {FLOATS: FIXED32, INT32S: VARINT, INT64S: VARINT, dtypes.DOUBLES: FIXED64}
_NUMBERS[UINT64S] = VARINT
_CONTENT = {*_NUMBERS, STRINGS, RAW}
_MAX_RANK = 1 << 10


class _Head:
    """What a walk over the fields of one tensor finds."""

    def __init__(self) -> None:
        self.name = b""
        self.dims: list[int] = []
        self.dtype = 0
        self.external: dict[str, str] = {}
        self.is_external = False
        self.stored: dict[int, tuple[int, int] | None] = {}  # field: its only range, or None
        self.unknown: list[tuple[int, int, int]] = []

    @property
    def plain(self) -> bool:
        """Whether there is nothing but elements, type and shape."""
        return not (self.is_external or self.external or self.unknown)

    def store(self, key: int, first: int, last: int) -> bool:
        """Note a field that holds elements; False when it is none."""
        number = key >> 3
        if number not in _CONTENT:
            return False
        wire = key & 7
        if wire not in (BYTES, _NUMBERS.get(number)):
            return False
        alone = wire == BYTES and number not in self.stored and number != STRINGS
        self.stored[number] = (first, last) if alone else None
        return True


def read_tensor(files: Files, reader: Reader, start: int, end: int) -> Tensor:
    """The tensor whose ``TensorProto`` lies in a range of the file.

    Raises `ModelError` for malformed bytes, and for external data that is missing, too short or
    outside the model's folder.
    """
    plain = plain_tensor(reader, start, end)
    if plain is not None:
        return plain
    head = _head(reader, start, end)
    if len(head.stored) == 1 and head.plain and (only := head.stored.get(RAW)):
        size, content, unusual = only[1] - only[0], reader.digest(*only), b""
    else:
        extra = Tokens("trivet 2026 graph tensor v1")
        nothing = extra.finish()
        size, content = _content(files, reader, start, end, head, extra)
        put_unknown(extra, reader, head.unknown)
        unusual = extra.finish()
        unusual = b"" if unusual == nothing else unusual
    kind = kind_of(head.dtype, size, head.dims)
    if is_integers(head.dtype, size):
        kind += content
    return Tensor(head.name, kind + unusual, content, bool(head.unknown))


def put_unknown(out: Tokens, reader: Reader, unknown: list[tuple[int, int, int]]) -> None:
    """Count fields that no rule classifies, as they stand."""
    for key, first, last in unknown:
        if key & 7 == BYTES:
            out.digest(key, last - first, reader.digest(first, last))
        else:
            out.number(key, first)


def _head(reader: Reader, start: int, end: int) -> _Head:
    head = _Head()
    for key, first, last in fields(reader, start, end):
        if key == _T_DIM:
            head.dims.append(first)
        elif key == _T_DTYPE:
            head.dtype = first
        elif key == _T_NAME:
            head.name = reader.read(first, last)
        elif not head.store(key, first, last):
            _other(reader, head, key, first, last)
        if len(head.dims) > _MAX_RANK:
            fail(reader, first, f"a tensor with more than {_MAX_RANK} dimensions")
    return head


def _other(reader: Reader, head: _Head, key: int, first: int, last: int) -> None:
    """Take a field that most tensors don't have."""
    if key == tag(DIMS, BYTES):
        head.dims.extend(_numbers(reader, key, first, last))
    elif key == tag(EXTERNAL, BYTES):
        name, value = _read_pair(reader, first, last)
        if name in head.external:
            fail(reader, first, f"external data says {name!r} twice")
        head.external[name] = value
    elif key == tag(LOCATION, VARINT):
        head.is_external = first == _EXTERNAL_LOCATION
        if first > _EXTERNAL_LOCATION:
            head.unknown.append((key, first, last))
    elif key not in (tag(DOC, BYTES), tag(METADATA, BYTES)):
        head.unknown.append((key, first, last))
    if len(head.unknown) + len(head.external) > _MAX_RANK:
        fail(reader, first, f"a tensor with more than {_MAX_RANK} unknown fields")


def _numbers(reader: Reader, key: int, first: int, last: int) -> Iterator[int]:
    """The numbers of one occurrence of a repeated field, packed or not."""
    if key & 7 == VARINT:
        yield first
        return
    if last - first > 10 * _MAX_RANK:
        fail(reader, first, f"a tensor with more than {_MAX_RANK} dimensions")
    for values in packed_varints(reader, first, last):
        yield from values


def _content(
    files: Files, reader: Reader, start: int, end: int, head: _Head, kind: Tokens
) -> tuple[int, bytes]:
    """Size in bytes and digest of the elements; what is unusual about the form goes to ``kind``."""
    if head.is_external:
        for number in sorted(head.stored):
            kind.digest(number, *_field_digest(reader, start, end, head, number, ""))
        return _external(files, head, kind)
    for name in sorted(head.external):  # no runtime looks at these, but they are no rule's either
        kind.data(EXTERNAL, name.encode())
        kind.data(EXTERNAL, head.external[name].encode())
    known = ONNX.get(head.dtype)
    if not head.stored:
        return 0, blake3().digest()
    if len(head.stored) == 1:
        (number,) = head.stored
        if number == RAW:
            return _field_digest(reader, start, end, head, RAW, "")
        if known is not None and number == known.field:
            # Numbers that the type can't hold have no raw form and count as they stand.
            with contextlib.suppress(OverflowError):
                return _field_digest(reader, start, end, head, number, known.code)
    whole = Tokens("trivet 2026 graph tensor mixed v1")
    for number in sorted(head.stored):
        whole.digest(number, *_field_digest(reader, start, end, head, number, ""))
        kind.number(number, 1)
    return 0, whole.finish()


def _field_digest(
    reader: Reader, start: int, end: int, head: _Head, number: int, code: str
) -> tuple[int, bytes]:
    """Size and digest of one data field, all its occurrences together, in raw form."""
    only = head.stored[number]
    wire = _NUMBERS.get(number, BYTES)
    if only is not None and wire != VARINT:
        return only[1] - only[0], reader.digest(*only)
    size = 0
    hasher = blake3()
    for piece in raw_pieces(reader, start, end, number, wire, code, framed=number == STRINGS):
        size += memoryview(piece).nbytes
        hasher.update(piece)
    return size, hasher.digest()


def raw_pieces(
    reader: Reader, start: int, end: int, number: int, wire: int, code: str, *, framed: bool
) -> Iterator[bytes | memoryview]:
    """One repeated field of a message in raw form: numbers packed, byte strings end to end.

    With ``framed``, every byte string comes after its length.
    Numbers of ``wire`` type are found packed and unpacked; varints become ``code`` elements
    (unsigned 64 bits by default), and `OverflowError` is raised when one does not fit.
    """
    single = array("Q")
    for key, first, last in fields(reader, start, end):
        if key == tag(number, VARINT) and wire == VARINT:
            single.append(first)
            if len(single) >= 1 << 13:
                yield _elements(single, code)
                single = array("Q")
        elif key == tag(number, BYTES) and wire == VARINT:
            if single:
                yield _elements(single, code)
                single = array("Q")
            for values in packed_varints(reader, first, last):
                yield _elements(values, code)
        elif key == tag(number, wire):
            if wire == BYTES:
                if framed:
                    yield (last - first).to_bytes(8, "little")
                yield from reader.chunks(first, last)
            else:
                yield first.to_bytes(4 if wire == FIXED32 else 8, "little")
        elif key == tag(number, BYTES):
            yield from reader.chunks(first, last)
    if single:
        yield _elements(single, code)


def _elements(values: array[int], code: str) -> bytes:
    """Numbers as read (64 bits, sign-extended) as little-endian elements of an array type."""
    if code and code not in "QBHI":
        signed = array("q", values.tobytes())
        raw = array(code, signed)
    elif code in ("B", "H"):
        raw = array(code, values)
    else:
        raw = array(code or "Q", values)
    if sys.byteorder == "big":
        raw.byteswap()
    return raw.tobytes()


def _external(files: Files, head: _Head, kind: Tokens) -> tuple[int, bytes]:
    """Size and digest of the range of another file; keys that no rule knows go to ``kind``."""
    entries = dict(head.external)
    path = files.beside(entries.pop("location", ""))
    offset = _natural(entries.pop("offset", "0"), "offset")
    length = entries.pop("length", None)
    size = _expected_size(head) if length is None else _natural(length, "length")
    if size is None:  # strings and types that this version does not know: the rest of the file
        size = max(0, files.open(path).size - offset)
    for name in sorted(entries):
        kind.data(EXTERNAL, name.encode())
        kind.data(EXTERNAL, entries[name].encode())
    return size, files.range_digest(path, offset, size)


def _expected_size(head: _Head) -> int | None:
    """Bytes that shape and type call for; None when the type is unknown."""
    known = ONNX.get(head.dtype)
    if known is None or not known.bits:
        return None
    count = 1
    for dim in head.dims:
        count *= dim
        if count >= 1 << 60:
            raise ModelError(f"the initialiser {head.name!r} has an impossible shape")
    return (count * known.bits + 7) // 8


def _natural(value: str, what: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise ModelError(f"external data has the {what} {value!r}, which is not a number of bytes")
    return int(value)


def _read_pair(reader: Reader, start: int, end: int) -> tuple[str, str]:
    """A ``StringStringEntryProto``."""
    pair = {1: "", 2: ""}
    for key, first, last in fields(reader, start, end):
        if key not in (tag(1, BYTES), tag(2, BYTES)):
            fail(reader, first, f"a pair of strings with a field {key >> 3}")
        pair[key >> 3] = decode(reader, first, last)
    return pair[1], pair[2]


def decode(reader: Reader, start: int, end: int) -> str:
    """Text that must be UTF-8."""
    try:
        return reader.read(start, end).decode()
    except UnicodeDecodeError:
        fail(reader, start, "a name is not UTF-8")


def read_sparse(files: Files, reader: Reader, start: int, end: int) -> Tensor:
    """A ``SparseTensorProto``: values, indices and shape; its name is that of the values."""
    parts: dict[int, Tensor] = {}
    dims = array("Q")
    unknown: list[tuple[int, int, int]] = []
    for key, first, last in fields(reader, start, end):
        if key in (tag(1, BYTES), tag(2, BYTES)):
            if key >> 3 in parts:
                fail(reader, first, "a sparse tensor has two sets of values or indices")
            parts[key >> 3] = read_tensor(files, reader, first, last)
        elif key in (tag(3, VARINT), tag(3, BYTES)):
            dims.extend(_numbers(reader, key, first, last))
        else:
            unknown.append((key, first, last))
        if len(dims) + len(unknown) > _MAX_RANK:
            fail(reader, first, f"a sparse tensor with more than {_MAX_RANK} dimensions")
    kind = Tokens("trivet 2026 graph sparse tensor v1")
    content = Tokens("trivet 2026 graph sparse content v1")
    kind.data(3, dims.tobytes())
    for number, part in sorted(parts.items()):
        kind.data(number, part.kind)
        content.data(number, part.content)
    put_unknown(kind, reader, unknown)
    opaque = bool(unknown) or any(part.opaque for part in parts.values())
    return Tensor(parts[1].name if 1 in parts else b"", kind.finish(), content.finish(), opaque)
