"""Sealed entries: any damage is noticed, the head before the body."""

from __future__ import annotations

import array
import mmap
import struct
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from trivet.entries import HEAD_SIZE, Descriptor, Failure, head_length, peek, seal, unseal
from trivet.entries.sealed import MAGIC, VERSION
from trivet.errors import CorruptEntry, IncompatibleEntry
from trivet.keys import Key

KEY = Key("value/1", {"x": 1}).canonical
FACTS = Descriptor(codec="bytes/1", created=10.0, cost=0.5, size=7, tags={"t": 1})
SEALED = seal(KEY, FACTS, b"payload")


def forge(
    *,
    version: int = VERSION,
    reserved: tuple[int, int] = (0, 0),
    key: bytes = KEY,
    facts: bytes | None = None,
    payload: bytes = b"payload",
    payload_size: int | None = None,
    key_size: int | None = None,
) -> bytes:
    """An entry with right checksums over whatever it claims, as a hostile writer would make it."""
    facts = FACTS.encode() if facts is None else facts
    front = struct.pack(
        "<HHIIIQ",
        version,
        reserved[0],
        len(key) if key_size is None else key_size,
        len(facts),
        reserved[1],
        len(payload) if payload_size is None else payload_size,
    ) + xxh3_128_digest(payload)
    head = front + blake3(front + key + facts + payload).digest() + key + facts
    return MAGIC + xxh3_128_digest(head) + head + payload


def test_the_forger_of_these_tests_makes_real_entries() -> None:
    assert forge() == SEALED


@given(st.binary(max_size=50), st.binary(max_size=200), st.text(), st.floats(0, 1e9))
def test_what_was_sealed_is_opened(key: bytes, payload: bytes, codec: str, cost: float) -> None:
    facts = Descriptor(codec=codec, created=1.0, cost=cost, failure=Failure("E", codec))
    sealed = seal(key, facts, payload)
    for strong in (False, True):
        opened = unseal(sealed, cryptographic=strong)
        assert (opened.key, opened.descriptor, opened.payload) == (key, facts, payload)
    assert head_length(sealed[:HEAD_SIZE]) == len(sealed) - len(payload)
    assert peek(sealed[: head_length(sealed)]) == (key, facts)


@pytest.mark.parametrize("strong", [False, True])
def test_every_single_flipped_bit_is_detected(strong: bool) -> None:
    undetected = []
    for bit in range(len(SEALED) * 8):
        damaged = bytearray(SEALED)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            unseal(damaged, cryptographic=strong)
        except CorruptEntry:
            continue
        except IncompatibleEntry:
            assert bit // 8 in (24, 25), "only the version may read as a release to come"
            continue
        undetected.append(bit)
    assert undetected == []


def test_every_flipped_bit_of_the_head_is_detected_without_the_body() -> None:
    head = head_length(SEALED)
    for bit in range(head * 8):
        damaged = bytearray(SEALED[:head])
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptEntry, IncompatibleEntry)):
            peek(damaged)


def test_every_truncation_and_every_extension_is_detected() -> None:
    for length in range(len(SEALED)):
        with pytest.raises(CorruptEntry):
            unseal(SEALED[:length])
    for extra in (b"\0", b"payload", SEALED):
        with pytest.raises(CorruptEntry):
            unseal(SEALED + extra)


def test_a_head_that_is_cut_is_detected() -> None:
    for length in range(head_length(SEALED)):
        with pytest.raises(CorruptEntry):
            peek(SEALED[:length])


def test_swapped_bodies_are_detected() -> None:
    other = seal(KEY, FACTS, b"PAYLOAD")
    start = head_length(SEALED)
    with pytest.raises(CorruptEntry, match="checksum"):
        unseal(SEALED[:start] + other[start:])


def test_the_cryptographic_digest_is_checked_on_demand() -> None:
    # Both fast checksums are right; only BLAKE3 knows that the entry isn't what was sealed.
    forged = bytearray(forge())
    forged[64:96] = bytes(32)
    forged[8:24] = xxh3_128_digest(forged[24 : head_length(forged)])
    assert unseal(forged).payload == b"payload"
    with pytest.raises(CorruptEntry, match="BLAKE3"):
        unseal(forged, cryptographic=True)


_SIZES = st.none() | st.integers(0, 300) | st.sampled_from([1 << 24, (1 << 24) + 1, (1 << 32) - 1])


@given(
    st.sampled_from([VERSION, VERSION, 0, 2, 257]),
    st.tuples(st.sampled_from([0, 0, 1]), st.sampled_from([0, 0, 1])),
    st.sampled_from([None, b"", b"\x80", b"\xc1", b"\x91" * 5000]),
    _SIZES,
    _SIZES,
    st.sampled_from([b"", b"more"]),
    st.booleans(),
)
def test_the_quick_look_and_the_checks_one_by_one_agree(
    version: int,
    reserved: tuple[int, int],
    facts: bytes | None,
    key_size: int | None,
    payload_size: int | None,
    extra: bytes,
    as_view: bool,
) -> None:
    forged = forge(
        version=version,
        reserved=reserved,
        facts=facts,
        key_size=key_size,
        payload_size=payload_size,
    )
    entry: bytes | memoryview = forged + extra
    if as_view:
        entry = memoryview(entry)

    def outcome(strong: bool) -> object:
        try:
            return unseal(entry, cryptographic=strong)
        except (CorruptEntry, IncompatibleEntry) as error:
            return type(error), error.message

    assert outcome(False) == outcome(True)


@pytest.mark.parametrize("version", [0, 2, 3, 255, 65535])
def test_another_version_is_incompatible_not_corrupt(version: int) -> None:
    future = forge(version=version)
    for open_ in (unseal, peek, head_length):
        with pytest.raises(IncompatibleEntry, match=str(version)):
            open_(future)


@pytest.mark.parametrize("reserved", [(1, 0), (0, 1), (0xFFFF, 0xFFFFFFFF)])
def test_reserved_fields_in_use_are_incompatible(reserved: tuple[int, int]) -> None:
    for open_ in (unseal, peek):
        with pytest.raises(IncompatibleEntry, match="reserved"):
            open_(forge(reserved=reserved))


def test_a_version_of_the_future_is_told_from_magic_and_version_alone() -> None:
    # Only the first 8 bytes and the two at 24 are promised to stay where they are.
    future = MAGIC + b"\xab" * 16 + struct.pack("<H", 9) + b"\xcd" * 70
    with pytest.raises(IncompatibleEntry):
        unseal(future)


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"TRIVET\n" + SEALED[8:],  # as a text-mode copy would leave it
        SEALED[:6] + b"\n\n" + SEALED[8:],
        b"\0" * 200,
        b"{}" * 100,
        forge(payload_size=1 << 63),
        forge(payload_size=0),
        forge(key_size=0xFFFFFFFF),
        forge(key_size=1 << 24),
        forge(facts=b""),
        forge(facts=b"\xc1"),
        forge(facts=b"\x80"),
        forge(facts=b"\x91" * 100_000),
    ],
    ids=range(13),
)
def test_impossible_entries_are_corrupt(entry: bytes) -> None:
    with pytest.raises(CorruptEntry):
        unseal(entry)


@given(st.binary(max_size=300))
def test_garbage_is_corrupt_or_incompatible(garbage: bytes) -> None:
    for raw in (garbage, MAGIC + garbage, SEALED[:24] + garbage):
        for open_ in (unseal, peek):
            with pytest.raises((CorruptEntry, IncompatibleEntry)):
                open_(raw)


def test_peek_does_not_touch_the_body(tmp_path: Path) -> None:
    # The body lies behind the end of the file: touching a mapped page there would be a SIGBUS.
    path = tmp_path / "entry"
    sealed = seal(KEY, FACTS, bytes(1 << 20))
    with path.open("w+b") as file:
        file.write(sealed[: head_length(sealed)])
        file.truncate(len(sealed))
        with mmap.mmap(file.fileno(), len(sealed)) as mapped:
            file.truncate(4096)
            view = memoryview(mapped)
            key, facts = peek(view)
            assert (bytes(key), facts) == (KEY, FACTS)
            key.release()
            view.release()


def test_the_payload_is_a_view_and_not_a_copy() -> None:
    buffer = bytearray(SEALED)
    opened = unseal(buffer)
    buffer[-1] ^= 1
    assert bytes(opened.payload) != b"payload"
    assert bytes(opened.payload[:-1]) == b"payloa"


@pytest.mark.parametrize(
    "payload",
    [
        memoryview(np.arange(6.0).reshape(2, 3)),
        memoryview(np.zeros((0, 3))),
        memoryview(array.array("i", [1, 2, 3])),
        bytearray(b"abc"),
    ],
    ids=["2-d", "empty", "integers", "bytearray"],
)
def test_buffers_of_any_element_type_are_sealed_as_bytes(payload: memoryview) -> None:
    assert bytes(unseal(seal(KEY, FACTS, payload)).payload) == memoryview(payload).tobytes()


def test_a_view_with_gaps_is_refused() -> None:
    with pytest.raises(TypeError):
        seal(KEY, FACTS, memoryview(b"abcdef")[::2])


def test_what_no_reader_would_accept_is_not_written() -> None:
    with pytest.raises(ValueError, match="at most"):
        seal(bytes((1 << 24) + 1), FACTS, b"")
    with pytest.raises(ValueError, match="descriptor"):
        seal(KEY, Descriptor(codec="x", created=float("nan")), b"")
    longest = seal(bytes(1 << 24), FACTS, b"p")
    assert len(unseal(longest).key) == 1 << 24
