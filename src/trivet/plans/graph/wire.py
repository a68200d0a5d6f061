"""The protobuf wire format, walked in a file without building messages.

Source: the encoding as published at https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import NoReturn

from trivet.errors import ModelError
from trivet.plans.graph.files import MARGIN, Reader

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MAX_TAG = 1 << 32
_CHUNK = 64 << 10
_FEW = 64

Field = tuple[int, int, int]


def tag(number: int, wire: int) -> int:
    """The tag of a field: its number and wire type."""
    return number << 3 | wire


def fail(reader: Reader, offset: int, what: str) -> NoReturn:
    """Raise a `ModelError` that says where the file is malformed."""
    raise ModelError(f"{reader.path!r} is malformed at byte {offset}: {what}")


def fields(reader: Reader, start: int, end: int) -> Iterable[Field]:
    """The fields of the message in a range, in file order, one level deep.

    Each is ``(tag, first, last)``: for bytes the range of the payload in the file, for numbers
    ``first`` is the value as an unsigned integer and ``last`` is where the next field begins.

    Raises `ModelError` for bytes that are no protobuf message, and for groups, which no model
    format uses.
    """
    data, base, _ = reader.window(start)
    # Nearly all messages of a model are short and ordinary; whatever is not, is walked.
    found = few_fields(data, start - base, end - base, base)
    return _walk(reader, start, end) if found is None else found


def few_fields(data: bytes, i: int, stop: int, base: int = 0) -> list[Field] | None:
    """`fields` of a short message in ``data[i:stop]``; None for any that needs a closer look.

    `MARGIN` bytes follow in ``data``; ``base`` is the offset in the file of its first byte.
    The payload of the last field may end after the data.
    """
    edge = min(stop - 1, len(data) - MARGIN)
    found: list[Field] = []
    while i <= edge:
        key = data[i]
        value = data[i + 1]
        i += 2
        if key > 127:
            if value > 127:
                return None
            key += (value - 1) << 7
            value = data[i]
            i += 1
        if value > 127:
            value &= 127
            shift = 7
            while (byte := data[i]) > 127 and shift < 56:
                value += (byte & 127) << shift
                shift += 7
                i += 1
            if byte > 127:
                return None
            value += byte << shift
            i += 1
        wire = key & 7
        if wire == BYTES:
            value += i
            found.append((key, base + i, base + value))
            i = value
        elif wire == VARINT:
            found.append((key, value, base + i))
        else:
            return None
        if key < 8 or len(found) > _FEW:
            return None
    return found if i == stop else None


def _walk(reader: Reader, start: int, end: int) -> Iterator[Field]:
    """`fields` of any message, however long and however odd."""
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
