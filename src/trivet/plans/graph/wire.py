"""The protobuf wire format, walked in a file without building messages.

Source: the encoding as published at https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NoReturn

from trivet.errors import ModelError
from trivet.plans.graph.files import MARGIN, Reader

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MAX_TAG = 1 << 32
_CHUNK = 64 << 10

Field = tuple[int, int, int]


def tag(number: int, wire: int) -> int:
    """The tag of a field: its number and wire type."""
    return number << 3 | wire


def fail(reader: Reader, offset: int, what: str) -> NoReturn:
    """Raise a `ModelError` that says where the file is malformed."""
    raise ModelError(f"{reader.path!r} is malformed at byte {offset}: {what}")


def fields(reader: Reader, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in a range, in file order, one level deep.

    Yields ``(tag, first, last)``: for bytes the range of the payload in the file, for numbers
    ``first`` is the value as an unsigned integer and ``last`` is where the next field begins.

    Raises `ModelError` for bytes that are no protobuf message, and for groups, which no model
    format uses.
    """
    data, base, last = reader.window(start)
    size = reader.size
    at = start
    while at < end:
        if at < base or (at + MARGIN > last and last < size):
            data, base, last = reader.window(at)
        i = at - base
        key = data[i]
        i += 1
        if key > 127:
            key, i = _varint(data, i - 1, reader, base)
        if not 8 <= key < _MAX_TAG:
            fail(reader, at, "a field number is 0 or too large")
        wire = key & 7
        if not wire & 5:  # bytes or a varint
            value = data[i]
            i += 1
            if value > 127:
                value, i = _varint(data, i - 1, reader, base)
            if wire == BYTES:
                first = base + i
                at = first + value
                if at > end:
                    fail(reader, first, f"{value} bytes are announced, {max(0, end - first)} left")
                yield key, first, at
                continue
        elif wire == FIXED32:
            value = int.from_bytes(data[i : i + 4], "little")
            i += 4
        elif wire == FIXED64:
            value = int.from_bytes(data[i : i + 8], "little")
            i += 8
        else:
            fail(reader, at, f"wire type {wire} is not used by models")
        at = base + i
        if at > end:
            fail(reader, end, "the last field is cut off")
        yield key, value, at


def _varint(data: bytes, i: int, reader: Reader, base: int) -> tuple[int, int]:
    """The varint at ``data[i]`` and the position after it."""
    value = shift = 0
    while True:
        byte = data[i]
        i += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            fail(reader, base + i, "a varint is longer than 64 bits")
    if value >> 64:
        fail(reader, base + i, "a varint is longer than 64 bits")
    return value, i


def packed_varints(reader: Reader, start: int, end: int) -> Iterator[array[int]]:
    """The numbers of a packed field, unsigned, in pieces of bounded size."""
    while start < end:
        data = reader.read(start, min(start + _CHUNK, end))
        if data.isascii():  # every number is a single byte
            start += len(data)
            yield array("Q", list(data))
            continue
        values = array("Q")
        i = complete = value = shift = 0
        for i, byte in enumerate(data, 1):
            value |= (byte & 127) << shift
            if byte > 127:
                shift += 7
                if shift > 63:
                    fail(reader, start + i, "a varint is longer than 64 bits")
                continue
            if value >> 64:
                fail(reader, start + i, "a varint is longer than 64 bits")
            values.append(value)
            complete, value, shift = i, 0, 0
        if complete == 0:
            fail(reader, start, "the last varint of a packed field is cut off")
        start += complete
        yield values
