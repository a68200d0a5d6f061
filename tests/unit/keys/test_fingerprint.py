"""Fingerprints: 32 bytes, with separate domains for contents, chains and sequences."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import InvalidKey
from trivet.keys import Fingerprint, Key


def test_of_is_blake3_of_any_buffer() -> None:
    expected = blake3(b"content").digest()
    for content in (b"content", bytearray(b"content"), memoryview(b"content")):
        assert Fingerprint.of(content) == expected


@pytest.mark.parametrize(
    "wrong",
    [b"", b"x" * 31, b"x" * 33, "x" * 32, [0] * 32, bytearray(32), memoryview(bytes(32)), 32],
    ids=lambda value: f"{type(value).__name__}",
)
def test_only_32_bytes_make_a_fingerprint(wrong: Any) -> None:
    with pytest.raises(InvalidKey):
        Fingerprint(wrong)


def test_a_chain_depends_on_every_part_and_on_their_order() -> None:
    root = Fingerprint.of(b"root")
    one = Fingerprint.chain(Fingerprint.chain(root, b"a"), b"b")
    assert one == Fingerprint.chain(Fingerprint.chain(root, b"a"), b"b")
    assert one != Fingerprint.chain(Fingerprint.chain(root, b"b"), b"a")
    assert one != Fingerprint.chain(root, b"ab")
    assert one != Fingerprint.chain(Fingerprint.chain(Fingerprint.of(b"other"), b"a"), b"b")


def test_a_chain_is_never_the_fingerprint_of_the_joined_content() -> None:
    parent = Fingerprint.of(b"p")
    assert Fingerprint.chain(parent, b"x") != Fingerprint.of(parent + b"x")
    assert Fingerprint.of_parts([parent, b"x"]) != Fingerprint.chain(parent, b"x")


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_the_boundaries_of_parts_count(one: list[bytes], other: list[bytes]) -> None:
    assert (Fingerprint.of_parts(one) == Fingerprint.of_parts(other)) is (one == other)


def test_it_works_as_bytes_and_in_keys() -> None:
    fingerprint = Fingerprint.of(b"x")
    assert Key("a/1", {"graph": fingerprint}) == Key("a/1", {"graph": bytes(fingerprint)})
    assert type(Key("a/1", {"graph": fingerprint})["graph"]) is bytes
    for twin in (pickle.loads(pickle.dumps(fingerprint)), copy.deepcopy(fingerprint)):
        assert twin == fingerprint
        assert type(twin) is Fingerprint
    assert fingerprint.hex()[:16] in repr(fingerprint)
