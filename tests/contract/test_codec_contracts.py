"""The codecs that ship, against the public contract."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from trivet.codecs import Arrays, Bytes, Codec, MsgPack
from trivet.testing import CodecContract


class Answer(msgspec.Struct):
    text: str
    tokens: list[int]
    scores: dict[str, float]
    parent: Answer | None = None


class TestBytes(CodecContract):
    def make(self) -> Codec[Any]:
        return Bytes()

    def values(self) -> st.SearchStrategy[Any]:
        return st.binary()


class TestMsgPackOfPlainData(CodecContract):
    def make(self) -> Codec[Any]:
        return MsgPack(dict[str, list[int]])

    def values(self) -> st.SearchStrategy[Any]:
        return st.dictionaries(st.text(), st.lists(st.integers(-(1 << 63), (1 << 64) - 1)))


class TestMsgPackOfStructs(CodecContract):
    def make(self) -> Codec[Any]:
        return MsgPack(Answer)

    def values(self) -> st.SearchStrategy[Any]:
        leaf = st.builds(
            Answer,
            st.text(),
            st.lists(st.integers(0, 1 << 40)),
            st.dictionaries(st.text(), st.floats(allow_nan=False)),
            st.none(),
        )
        return st.one_of(leaf, leaf.map(lambda parent: Answer("child", [], {}, parent)))


class TestArrays(CodecContract):
    def make(self) -> Codec[Any]:
        return Arrays()

    def values(self) -> st.SearchStrategy[Any]:
        dtypes = st.one_of(
            npst.boolean_dtypes(),
            npst.integer_dtypes(endianness="?"),
            npst.unsigned_integer_dtypes(endianness="?"),
            npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
            npst.complex_number_dtypes(endianness="?", sizes=(64, 128)),
        )
        shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
        return st.dictionaries(st.text(max_size=5), npst.arrays(dtypes, shapes), max_size=3)

    def equal(self, one: Any, other: Any) -> bool:
        return list(one) == list(other) and all(
            one[name].shape == other[name].shape
            and one[name].dtype == other[name].dtype.newbyteorder("<")
            and np.array_equal(one[name], other[name], equal_nan=True)
            for name in one
        )
