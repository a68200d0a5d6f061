"""The head and the contents of a bundle: one valid form, and nothing else is taken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from blake3 import blake3

from trivet.entries.bundle import HEAD_SIZE, MAX_CHUNK, Contents, EntryRecord, Head
from trivet.errors import CorruptEntry, IncompatibleEntry

A, B = bytes([1]) * 32, bytes([2]) * 32
HEAD = Head(chunks=100, contents=50, signature=7, id=A)
SIZE = HEAD_SIZE + 157


def chunks(*lengths: int) -> tuple[tuple[int, ...], bytes]:
    return lengths, b"".join(blake3(bytes([n])).digest() for n in range(len(lengths)))


def entries(*records: Any) -> tuple[EntryRecord, ...]:
    return tuple(EntryRecord(*each) for each in records)


GOOD = Contents(*chunks(10, 20, 30), entries((A, (0,), ((1, 0), ())), (B, (2,))))


def test_the_head_comes_back() -> None:
    assert Head.decode(HEAD.encode(), SIZE) == HEAD


@pytest.mark.parametrize("size", [0, SIZE - 1, SIZE + 1])
def test_a_file_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(CorruptEntry, match="its head says"):
        Head.decode(HEAD.encode(), size)


@pytest.mark.parametrize("count", [0, 8, HEAD_SIZE - 1])
def test_a_short_head_is_refused(count: int) -> None:
    with pytest.raises(CorruptEntry):
        Head.decode(HEAD.encode()[:count], SIZE)


@pytest.mark.parametrize("at", [8, 9, 10, 15])
def test_a_later_format_is_said_to_be_one(at: int) -> None:
    raw = bytearray(HEAD.encode())
    raw[at] ^= 0x40
    with pytest.raises(IncompatibleEntry):
        Head.decode(bytes(raw), SIZE)


def test_lengths_that_no_bundle_has_are_refused_before_anything_is_read() -> None:
    huge = Head(chunks=0, contents=1 << 60, signature=0, id=A)
    with pytest.raises(CorruptEntry, match="impossible"):
        Head.decode(huge.encode(), HEAD_SIZE + (1 << 60))


def test_contents_come_back_as_the_same_bytes() -> None:
    assert Contents.decode(GOOD.encode()) == GOOD
    assert Contents.decode(GOOD.encode()).encode() == GOOD.encode()
    assert GOOD.unpacked == 10 + 30 + 30
    assert Contents.decode(Contents((), b"", ()).encode()).entries == ()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ((*chunks(10), entries((A, (1,)))), "order"),
        ((*chunks(10), entries((A, (0, -1)))), "order"),
        ((*chunks(10), entries((A, (0, 1 << 62)))), "order"),
        ((*chunks(10, 20), entries((A, (1, 0)))), "order"),
        ((*chunks(10, 20), entries((A, (0,)))), "no entry names"),
        (((10, 10), chunks(10)[1] * 2, entries((A, (0, 1)))), "twice"),
        (((10, 10), chunks(10)[1], entries((A, (0, 1)))), "incomplete"),
        ((*chunks(0), entries((A, (0,)))), "length"),
        ((*chunks(-5), entries((A, (0,)))), "length"),
        ((*chunks(MAX_CHUNK + 1), entries((A, (0,)))), "length"),
        ((*chunks(10), entries((B, (0,)), (A, (0,)))), "sorted"),
        ((*chunks(10), entries((A, (0,)), (A, (0,)))), "unique"),
        ((*chunks(10), entries((b"short", (0,)))), "32 bytes"),
        ((*chunks(MAX_CHUNK), entries((A, (0,) * 65))), "at most"),
    ],
)
def test_contents_that_no_writer_makes_are_refused(wrong: Any, why: str) -> None:
    with pytest.raises(CorruptEntry, match=why):
        Contents(*wrong)
    lengths, digests, records = wrong
    plain = [lengths, digests, [[r.digest, r.sealed, r.files] for r in records]]
    with pytest.raises(CorruptEntry):
        Contents.decode(msgspec.msgpack.encode(plain))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        GOOD.encode() + b"\0",
        GOOD.encode()[:-1],
        msgspec.msgpack.encode({"lengths": []}),
        msgspec.msgpack.encode([[], b"", [], "more"]),
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 5000,
    ],
)
def test_bytes_in_any_other_form_are_refused(raw: bytes) -> None:
    with pytest.raises(CorruptEntry):
        Contents.decode(raw)
