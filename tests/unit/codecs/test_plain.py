"""Plain codecs: strict types, and ids that tell types apart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trivet.codecs import Bytes, MsgPack


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


@pytest.mark.parametrize("value", ["text", 5, [1, 2], None])
def test_only_bytes_are_bytes(value: Any) -> None:
    with pytest.raises(TypeError):
        Bytes().encode(value)


def test_bytes_are_copied_out_of_the_buffer() -> None:
    buffer = bytearray(b"abc")
    decoded = Bytes().decode(memoryview(buffer))
    buffer[0] = 0
    assert decoded == b"abc"
    assert Bytes().encode(memoryview(b"abc")) == b"abc"  # type: ignore[arg-type]


def test_decoding_is_strict() -> None:
    for wrong in ({"x": "1"}, {"x": 1.5}, {"x": True}, {"y": 1.0}, [1], None):
        with pytest.raises(ValueError):
            MsgPack(Point).decode(memoryview(msgspec.msgpack.encode(wrong)))


def test_bytes_after_the_end_are_refused() -> None:
    raw = MsgPack(Point).encode(Point(1))
    with pytest.raises(ValueError):
        MsgPack(Point).decode(memoryview(raw + b"\xc0"))


def test_ids_tell_types_apart() -> None:
    class Point(msgspec.Struct):  # the same name in another place
        x: int

    kinds: list[Any] = [int, str, dict[str, int], dict[str, float], list[int], int | str, Point]
    kinds += [globals()["Point"], list[Point], dict, Any]
    ids = [MsgPack(kind).id for kind in kinds]
    assert len(set(ids)) == len(ids)
    assert MsgPack(dict[str, int]).id == "msgpack/1:dict[str, int]"
    assert MsgPack(int).id == "msgpack/1:int"
    assert MsgPack(globals()["Point"]).id.endswith("test_plain.Point")


def test_what_has_no_form_is_refused_by_the_writer() -> None:
    codec: MsgPack[Any] = MsgPack(object)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (object(), 1 << 70, deep, {"x": {1, object()}}, "\ud800"):
        with pytest.raises((TypeError, ValueError)):
            codec.encode(value)


def test_equal_mappings_have_equal_bytes() -> None:
    codec = MsgPack(dict[str, int])
    assert codec.encode({"a": 1, "b": 2}) == codec.encode({"b": 2, "a": 1})
