"""Keys: type-strict, canonical, immutable, and able to say how they differ."""

from __future__ import annotations

import copy
import enum
import json
import math
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trivet.errors import CorruptEntry, InvalidKey
from trivet.keys import ABSENT, Key

encode = msgspec.msgpack.Encoder(order="deterministic").encode

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(),
    st.binary(),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner)),
    max_leaves=12,
)
fields = st.dictionaries(st.text(), values, max_size=6)


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


ALIKE = [0, 0.0, -0.0, False, None, "", b"", [], {}, "0", b"0", [0], {"0": 0}]


@pytest.mark.parametrize("one", ALIKE, ids=repr)
@pytest.mark.parametrize("other", ALIKE, ids=repr)
def test_values_of_different_types_make_different_keys(one: Any, other: Any) -> None:
    same = repr(one) == repr(other)
    assert (Key("a/1", {"x": one}) == Key("a/1", {"x": other})) is same
    assert (Key("a/1", {"x": one}).digest == Key("a/1", {"x": other}).digest) is same


def test_one_true_and_one_point_zero_differ() -> None:
    assert len({Key("a/1", {"x": value}) for value in (1, True, 1.0, "1", b"1")}) == 5


def test_an_unset_field_differs_from_none() -> None:
    assert Key("a/1", {}) != Key("a/1", {"x": None})


def test_space_is_part_of_the_key() -> None:
    assert Key("a/1", {"x": 1}) != Key("a/2", {"x": 1})
    assert Key("a/1", {"x": 1}).digest != Key("b/1", {"x": 1}).digest


def test_lists_and_tuples_are_the_same() -> None:
    assert Key("a/1", {"x": [1, [2]]}) == Key("a/1", {"x": (1, (2,))})


def test_order_counts_in_lists_but_not_in_mappings() -> None:
    assert Key("a/1", {"x": [1, 2]}) != Key("a/1", {"x": [2, 1]})
    assert Key("a/1", {"x": {"a": 1, "b": 2}, "y": 0}) == Key(
        "a/1", {"y": 0, "x": {"b": 2, "a": 1}}
    )


def test_any_mapping_will_do() -> None:
    plain = Key("a/1", {"x": {"b": 1, "a": 2}})
    assert Key("a/1", MappingProxyType({"x": OrderedDict(b=1, a=2)})) == plain


def test_not_a_number_equals_itself_and_zeros_keep_their_sign() -> None:
    assert Key("a/1", {"x": math.nan}) == Key("a/1", {"x": math.nan})
    assert Key("a/1", {"x": 0.0}) != Key("a/1", {"x": -0.0})


@pytest.mark.parametrize(
    "value",
    [
        Colour.RED,
        Text("x"),
        np.float32(1),
        np.float64(1),  # a subclass of float
        np.int64(1),
        np.bool_(True),
        np.zeros(2),
        bytearray(b"x"),
        memoryview(b"x"),
        {1, 2},
        frozenset(),
        1j,
        object(),
        len,
        range(3),
        ABSENT,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_canonical_form_is_refused_with_its_path(value: object) -> None:
    with pytest.raises(InvalidKey, match=r"options\.deep\[1\]"):
        Key("a/1", {"options": {"deep": [0, value]}})  # type: ignore[dict-item]


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, 10**40])
def test_integers_over_64_bits_are_refused_with_their_path(value: int) -> None:
    with pytest.raises(InvalidKey, match=r"a\.b.*64 bits"):
        Key("a/1", {"a": {"b": value}})


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\udc80 from a file name"])
def test_lone_surrogates_are_refused_wherever_they_stand(text: str) -> None:
    with pytest.raises(InvalidKey, match="not Unicode"):
        Key("a/1", {"x": text})
    with pytest.raises(InvalidKey, match="not Unicode"):
        Key("a/1", {"x": {text: 1}})
    with pytest.raises(InvalidKey, match="not Unicode"):
        Key(text, {})


def test_unicode_is_not_normalised() -> None:
    assert Key("a/1", {"x": "\u00e9"}) != Key("a/1", {"x": "e\u0301"})


@pytest.mark.parametrize("name", [1, None, b"x", Text("x"), ("a",)], ids=repr)
def test_names_are_strings(name: Any) -> None:
    with pytest.raises(InvalidKey, match="names"):
        Key("a/1", {name: 1})


@pytest.mark.parametrize("space", ["", None, 1, b"a/1", Text("a/1")], ids=repr)
def test_a_space_is_a_non_empty_string(space: Any) -> None:
    with pytest.raises(InvalidKey, match="space"):
        Key(space, {})


@pytest.mark.parametrize("wrong", [None, [], 1, "x", [("a", 1)]], ids=repr)
def test_fields_are_a_mapping(wrong: Any) -> None:
    with pytest.raises(InvalidKey, match="mapping"):
        Key("a/1", wrong)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_has_a_limit_and_a_loop_meets_it() -> None:
    Key("a/1", {"x": nested(15)})
    with pytest.raises(InvalidKey, match="nested"):
        Key("a/1", {"x": nested(16)})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidKey, match="nested"):
        Key("a/1", {"x": loop})


def test_a_key_does_not_follow_later_changes_of_its_source() -> None:
    source: dict[str, Any] = {"x": [1], "m": {"y": 1}}
    key = Key("a/1", source)
    source["x"].append(2)
    source["m"]["y"] = 2
    assert key["x"] == (1,)
    assert key["m"] == {"y": 1}
    assert key == Key("a/1", {"x": [1], "m": {"y": 1}})


def test_a_key_and_what_it_hands_out_can_not_be_changed() -> None:
    key = Key("a/1", {"m": {"y": {"z": 1}}, "l": [{"a": 1}]})
    for attribute in ("space", "canonical", "digest", "_fields", "new"):
        with pytest.raises(AttributeError):
            setattr(key, attribute, "x")
    with pytest.raises(AttributeError):
        del key.space  # type: ignore[misc]
    changes = [
        lambda: key["m"].update(y=2),
        lambda: key["m"]["y"].__setitem__("z", 2),
        lambda: key["l"][0].pop("a"),
        key["m"].clear,
        lambda: key["m"].setdefault("q", 1),
        lambda: key["m"].__ior__({"q": 1}),
        lambda: key["m"].__delitem__("y"),
        key["m"].popitem,
    ]
    for change in changes:
        with pytest.raises(TypeError, match="can't be changed"):
            change()
    assert Key.from_canonical(key.canonical) == key.replace()


def test_a_key_reads_like_a_mapping() -> None:
    key = Key("a/1", {"x": 1, "y": None})
    assert (key["x"], key.get("y", 5), key.get("z", 5)) == (1, None, 5)
    assert "x" in key
    assert "z" not in key
    assert list(key) == ["x", "y"]
    assert len(key) == 2
    assert "a/1" in repr(key)


def test_replace_makes_another_key() -> None:
    key = Key("a/1", {"x": 1, "m": {"y": 1}})
    assert key.replace(x=2) == Key("a/1", {"x": 2, "m": {"y": 1}})
    assert key["x"] == 1


def test_keys_survive_pickle_and_copy() -> None:
    key = Key("a/1", {"m": {"y": [1, {"z": math.nan}]}})
    for twin in (pickle.loads(pickle.dumps(key)), copy.copy(key), copy.deepcopy(key)):
        assert twin == key
        assert hash(twin) == hash(key)
        assert twin.digest == key.digest
    mine = copy.deepcopy(key["m"])
    mine["y"] = 2  # a copy is the copier's own
    assert key["m"]["y"] != 2


def test_a_key_is_equal_to_keys_only() -> None:
    key = Key("a/1", {})
    assert key != key.canonical
    assert key != "a/1"


# --- differences


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    found = Key("a/1", one).diff(Key("a/1", other))
    return [(each.name, each.mine, each.theirs) for each in found]


def test_equal_keys_have_no_difference() -> None:
    same = {"x": math.nan, "m": {"y": [1]}}
    assert differences(same, same) == []


def test_differences_have_dotted_paths_and_are_sorted() -> None:
    assert differences(
        {"z": 1, "options": {"threads": 2, "deep": {"a": 1}}, "same": 0},
        {"z": 2, "options": {"threads": 4, "deep": {"a": 1}}, "same": 0},
    ) == [("options.threads", 2, 4), ("z", 1, 2)]


def test_a_missing_field_reads_absent_and_is_not_none() -> None:
    assert differences({"x": None}, {}) == [("x", None, ABSENT)]
    assert differences({}, {"m": {"y": 1}}) == [("m", ABSENT, {"y": 1})]
    assert differences({"m": {}}, {"m": {"y": None}}) == [("m.y", ABSENT, None)]
    assert str(ABSENT) == "(absent)"


def test_a_change_of_type_is_a_difference() -> None:
    assert differences({"x": 1}, {"x": True}) == [("x", 1, True)]
    assert differences({"x": 0.0}, {"x": -0.0}) == [("x", 0.0, -0.0)]
    assert differences({"x": [1]}, {"x": {"0": 1}}) == [("x", (1,), {"0": 1})]


def test_lists_are_compared_whole() -> None:
    assert differences({"x": [1, 2]}, {"x": [1, 3]}) == [("x", (1, 2), (1, 3))]


def test_different_spaces_are_a_difference_of_their_own() -> None:
    found = Key("a/1", {"x": 1}).diff(Key("a/2", {"x": 1}))
    assert [(each.name, each.mine, each.theirs) for each in found] == [("(space)", "a/1", "a/2")]


@given(fields, fields)
def test_keys_differ_exactly_when_the_difference_is_not_empty(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    mine, theirs = Key("a/1", one), Key("a/1", other)
    assert (mine == theirs) is (mine.diff(theirs) == ())
    assert len(mine.diff(theirs)) == len(theirs.diff(mine))


# --- canonical bytes


@given(fields)
def test_canonical_bytes_round_trip(each: dict[str, Any]) -> None:
    key = Key("value/1", each)
    again = Key.from_canonical(memoryview(key.canonical))
    assert again == key
    assert (again.space, again.digest) == (key.space, key.digest)
    assert again.diff(key) == ()


@given(fields, st.randoms(use_true_random=False))
def test_insertion_order_does_not_matter(each: dict[str, Any], random: Any) -> None:
    shuffled = list(each.items())
    random.shuffle(shuffled)
    assert Key("value/1", dict(shuffled)).canonical == Key("value/1", each).canonical


NOT_CANONICAL = {
    "nothing": b"",
    "not a list": encode({"a": 1}),
    "too short": encode([1, "a/1"]),
    "too long": encode([1, "a/1", {}, {}]),
    "another format": encode([2, "a/1", {}]),
    "format as bool": encode([True, "a/1", {}]),
    "format as float": encode([1.0, "a/1", {}]),
    "bytes after the end": encode([1, "a/1", {}]) + b"\xc0",
    "cut": encode([1, "a/1", {"x": "abc"}])[:-1],
    "no space": encode([1, "", {}]),
    "space of another type": encode([1, b"a/1", {}]),
    "fields are a list": encode([1, "a/1", []]),
    "fields are missing": encode([1, "a/1", None]),
    "names out of order": b"\x93\x01\xa3a/1\x82\xa1b\x01\xa1a\x01",
    "a name twice": b"\x93\x01\xa3a/1\x82\xa1a\x01\xa1a\x02",
    "the same name and value twice": b"\x93\x01\xa3a/1\x82\xa1a\x01\xa1a\x01",
    "a name that is a number": b"\x93\x01\xa3a/1\x81\x01\x01",
    "a name that is a list": b"\x93\x01\xa3a/1\x81\x90\x01",
    "a long form of a small number": b"\x93\x01\xa3a/1\x81\xa1a\xcd\x00\x01",
    "a long form of a short text": b"\x93\x01\xa3a/1\x81\xa1a\xd9\x01b",
    "a long form of a short map": b"\x93\x01\xa3a/1\xde\x00\x01\xa1a\x01",
    "a float of 32 bits": b"\x93\x01\xa3a/1\x81\xa1a\xca\x3f\x80\x00\x00",
    "an extension": b"\x93\x01\xa3a/1\x81\xa1a\xd4\x05\x00",
    "a time": b"\x93\x01\xa3a/1\x81\xa1a\xd6\xff\x00\x00\x00\x00",
    "a text that is not UTF-8": b"\x93\x01\xa3a/1\x81\xa1a\xa2\xff\xfe",
    "a surrogate in UTF-8": b"\x93\x01\xa3a/1\x81\xa1a\xa3\xed\xa0\x80",
    "a reserved byte": b"\x93\x01\xa3a/1\x81\xa1a\xc1",
    "a list of four thousand million": b"\x93\x01\xa3a/1\x81\xa1a\xdd\xff\xff\xff\xff",
    "a map of four thousand million": b"\x93\x01\xa3a/1\xdf\xff\xff\xff\xff",
    "bytes of four thousand million": b"\x93\x01\xa3a/1\x81\xa1a\xc6\xff\xff\xff\xff",
    "nested seventeen deep": encode([1, "a/1", {"x": nested(16)}]),
    "nested without end": b"\x93\x01\xa3a/1\x81\xa1a" + b"\x91" * 200_000,
    "nested maps without end": b"\x93\x01\xa3a/1" + b"\x81\xa1a" * 200_000,
}


@pytest.mark.parametrize("name", NOT_CANONICAL)
def test_bytes_that_no_key_would_produce_are_corrupt(name: str) -> None:
    with pytest.raises(CorruptEntry):
        Key.from_canonical(NOT_CANONICAL[name])


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_garbage_is_corrupt_or_a_key_in_canonical_form(garbage: bytes) -> None:
    for raw in (garbage, b"\x93\x01\xa3a/1\x81\xa1x" + garbage):
        try:
            assert Key.from_canonical(raw).canonical == raw
        except CorruptEntry:
            continue


def test_every_flipped_bit_is_corrupt_or_another_key() -> None:
    key = Key("a/1", {"x": [1, 2.5, "text"], "m": {"b": b"\x00", "n": None}})
    for bit in range(len(key.canonical) * 8):
        damaged = bytearray(key.canonical)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            other = Key.from_canonical(bytes(damaged))
        except CorruptEntry:
            continue
        assert other != key
        assert other.canonical == damaged


PROGRAM = """
import json, sys
from trivet.keys import Key
fields = json.loads(sys.argv[1])
if sys.argv[2] == "reversed":
    fields = dict(reversed(fields.items()))
    fields["options"] = dict(reversed(fields["options"].items()))
key = Key("plan/1", fields)
print(key.canonical.hex(), key.digest.hex(), hash(key) == hash(Key("plan/1", fields)))
"""


def test_a_key_is_the_same_in_other_processes_hash_seeds_and_orders() -> None:
    fields = {"b": 1, "a": [1, "x"], "options": {name: len(name) for name in "zyxabc"}, "é": 1.5}
    outputs = set()
    for seed, order in (("0", "as given"), ("1", "reversed"), ("4242", "as given")):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(fields), order],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)
    here = Key("plan/1", fields)
    assert outputs == {f"{here.canonical.hex()} {here.digest.hex()} True\n"}
