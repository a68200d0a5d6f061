"""Descriptors: readable by older and newer releases, and closed to impossible facts."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.entries import Descriptor, Failure
from trivet.errors import CorruptEntry
from trivet.keys import Fingerprint

encode = msgspec.msgpack.encode
LEAST = {"codec": "bytes/1", "created": 1.0}


def test_all_facts_round_trip() -> None:
    descriptor = Descriptor(
        codec="files/1",
        created=1.5,
        expires=2.5,
        cost=3.5,
        size=4,
        tags={"release:1": 7},
        group="a/b",
        failure=Failure("E", "text"),
        detail={"isa": ["avx2"], "n": 1, "none": None, "raw": b"\0", "deep": {"x": [1.5]}},
    )
    assert Descriptor.decode(descriptor.encode()) == descriptor


def test_equal_descriptors_have_equal_bytes() -> None:
    one = Descriptor(**LEAST, tags={"b": 1, "a": 2}, detail={"y": 1, "x": {"q": 1, "p": 2}})
    two = Descriptor(**LEAST, tags={"a": 2, "b": 1}, detail={"x": {"p": 2, "q": 1}, "y": 1})
    assert one.encode() == two.encode()


def test_fields_of_later_releases_are_ignored() -> None:
    raw = encode({**LEAST, "invented_in_2031": {"deep": [1]}, "failure": {
        "error_class": "E", "text": "t", "also_new": 1}})  # fmt: skip
    assert Descriptor.decode(raw) == Descriptor(**LEAST, failure=Failure("E", "t"))


def test_fields_that_an_earlier_release_did_not_write_have_defaults() -> None:
    assert Descriptor.decode(encode(LEAST)) == Descriptor(**LEAST)


def test_defaults_are_not_shared() -> None:
    one, two = Descriptor.decode(encode(LEAST)), Descriptor.decode(encode(LEAST))
    one.tags["x"] = 1
    one.detail["x"] = 1
    assert (two.tags, two.detail) == ({}, {})
    assert Descriptor(**LEAST).tags == {}


IMPOSSIBLE = {
    "a lifetime that never compares": {"expires": math.nan},
    "endless by infinity": {"expires": math.inf},
    "created never": {"created": math.nan},
    "created at minus infinity": {"created": -math.inf},
    "cost not a number": {"cost": math.nan},
    "cost without end": {"cost": math.inf},
    "negative cost": {"cost": -1.0},
    "negative size": {"size": -1},
    "size over any disk": {"size": 1 << 63},
    "size as a float": {"size": 1.5},
    "size as a bool": {"size": True},
    "negative epoch": {"tags": {"t": -1}},
    "epoch as text": {"tags": {"t": "1"}},
    "tag that is a number": {"tags": {1: 1}},
    "codec that is not text": {"codec": b"bytes/1"},
    "group that is not text": {"group": None},
    "failure that is text": {"failure": "E"},
    "failure without text": {"failure": {"error_class": "E"}},
    "detail that is a list": {"detail": []},
    "created as text": {"created": "1.0"},
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_facts_are_corrupt(name: str) -> None:
    with pytest.raises(CorruptEntry):
        Descriptor.decode(encode({**LEAST, **IMPOSSIBLE[name]}))


@pytest.mark.parametrize("missing", ["codec", "created"])
def test_missing_facts_are_corrupt(missing: str) -> None:
    with pytest.raises(CorruptEntry):
        Descriptor.decode(encode({name: value for name, value in LEAST.items() if name != missing}))


LEAST_PARTS = encode("codec") + encode("c") + encode("created") + encode(1.0)


def pair(name: str, value: Any) -> bytes:
    return encode(name) + encode(value)


@pytest.mark.parametrize("order", [(1.0, math.nan), (math.nan, 1.0)])
def test_a_field_given_twice_smuggles_nothing_in(order: tuple[float, float]) -> None:
    raw = b"\x84" + LEAST_PARTS + pair("expires", order[0]) + pair("expires", order[1])
    with pytest.raises(CorruptEntry):
        Descriptor.decode(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        encode([]),
        encode("x"),
        encode(LEAST) + b"\xc0",
        encode(LEAST)[:-1],
        b"\xdf\xff\xff\xff\xff",
        b"\x83" + LEAST_PARTS + encode("detail") + b"\x81\xa1a" * 99_999,
        b"\x83" + LEAST_PARTS + encode("detail") + b"\xdf\xff\xff\xff\xff",
        b"\x82" + pair("codec", "c") + b"\xa7created\xd6\xff\0\0\0\0",
        b"\x82" + b"\xa5codec\xa1\xff" + pair("created", 1.0),
    ],
    ids=range(10),
)  # fmt: skip
def test_other_bytes_are_corrupt(raw: bytes) -> None:
    with pytest.raises(CorruptEntry):
        Descriptor.decode(raw)


@given(st.binary(max_size=80))
def test_garbage_is_corrupt(garbage: bytes) -> None:
    for raw in (garbage, encode(LEAST)[:-5] + garbage):
        try:
            assert isinstance(Descriptor.decode(raw), Descriptor)
        except CorruptEntry:
            continue


@pytest.mark.parametrize(
    "facts",
    [
        {"expires": math.nan},
        {"cost": -1.0},
        {"size": 1 << 70},
        {"tags": {"t": -1}},
        {"detail": {"x": object()}},
        {"detail": {"x": 1 << 70}},
        {"codec": "\ud800"},
        {"codec": 5},
    ],
    ids=repr,
)
def test_a_writer_refuses_what_readers_would_take_for_damage(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Descriptor(**{**LEAST, **facts}).encode()


def test_a_detail_nested_without_end_is_refused_by_the_writer() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="descriptor"):
        Descriptor(**LEAST, detail={"deep": deep}).encode()


def test_fingerprints_may_stand_in_details() -> None:
    fingerprint = Fingerprint.of(b"x")
    raw = Descriptor(**LEAST, detail={"graph": fingerprint}).encode()
    assert Descriptor.decode(raw).detail == {"graph": bytes(fingerprint)}
