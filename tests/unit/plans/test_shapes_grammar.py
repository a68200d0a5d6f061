"""The text form of shape rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.errors import ShapeError
from trivet.plans.shapes import Shapes
from trivet.plans.shapes.grammar import Axis, format_rule, parse_rule


@pytest.mark.parametrize(
    ("text", "name", "axes"),
    [
        ("x=3", "x", (Axis(size=3),)),
        (
            "x=N{1,8,32}x3x224x?",
            "x",
            (Axis(symbol="N", buckets=(1, 8, 32)), Axis(size=3), Axis(size=224), Axis()),
        ),
        ("ids=Bx{64,16}", "ids", (Axis(symbol="B"), Axis(buckets=(16, 64)))),
        ("a=batch_size[2..9]x0", "a", (Axis(symbol="batch_size", bounds=(2, 9)), Axis(size=0))),
        ("s=()", "s", ()),
        (" a = N x 3 ", "a", (Axis(symbol="N"), Axis(size=3))),
        ("/enc/in.0:0=N", "/enc/in.0:0", (Axis(symbol="N"),)),
        ("'a=b'='max_len'x\"it's\"", "a=b", (Axis(symbol="max_len"), Axis(symbol="it's"))),
    ],
)
def test_rule_is_read_as_written(text: str, name: str, axes: tuple[Axis, ...]) -> None:
    assert parse_rule(text) == (name, axes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "=3",
        "x=",
        "x=3x",
        "x=x3",
        "x=3,4",
        "x=-1",
        "x=N{}",
        "x=N{0,4}",
        "x=N{4,4}",
        "x=N[5..4]",
        "x=N[1..]",
        "x=N{1",
        "x=3 4",
        "x=max_len",  # 'x' separates axes; "_len" is no symbol
        "x='open",
        "x=99999999999999999999",
        "x=N{1,8}[1..8]",
        "x=()x3",
    ],
)
def test_malformed_rule_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_rule(text)
    assert repr(text) in caught.value.message


names = st.text(
    st.characters(exclude_characters="\"'\n", exclude_categories=("C", "Z")), min_size=1
).filter(lambda name: name.strip() == name)
symbols = names
sizes = st.integers(min_value=1, max_value=10**6)
axes = st.one_of(
    st.just(Axis()),
    st.builds(Axis, size=st.integers(min_value=0, max_value=2**40)),
    st.builds(Axis, symbol=symbols),
    st.builds(
        lambda symbol, low, more: Axis(symbol=symbol, bounds=(low, low + more)),
        symbols,
        st.integers(min_value=0, max_value=100),
        st.integers(min_value=0, max_value=100),
    ),
    st.builds(
        lambda symbol, buckets: Axis(symbol=symbol, buckets=tuple(sorted(buckets))),
        st.none() | symbols,
        st.sets(sizes, min_size=1, max_size=5),
    ),
)


@given(names, st.lists(axes, max_size=5))
def test_formatted_rule_parses_to_the_same_rule(name: str, rule: list[Axis]) -> None:
    assert parse_rule(format_rule(name, tuple(rule))) == (name, tuple(rule))


@given(st.text(max_size=40))
def test_any_text_is_a_rule_or_a_shape_error(text: str) -> None:
    try:
        name, rule = parse_rule(text)
    except ShapeError:
        return
    assert name
    assert all(isinstance(axis, Axis) for axis in rule)


def test_repr_says_all_that_was_declared() -> None:
    shapes = Shapes(
        "ids=Bx{16,32}",
        "mask=Bx{16,32}",
        pad={"ids": 1},
        mask="mask",
        cut={"y": {0: "B"}},
        outside="fallback",
    )
    assert eval(repr(shapes), {"Shapes": Shapes}) == shapes
    assert shapes != Shapes("ids=Bx{16,32}", "mask=Bx{16,32}", pad={"ids": 1}, mask="mask")


def test_two_rules_for_one_input_are_refused() -> None:
    with pytest.raises(ShapeError, match="two shape rules"):
        Shapes("x=N", "x=3")


def test_symbol_with_two_different_rules_is_refused() -> None:
    with pytest.raises(ShapeError, match="two different rules"):
        Shapes("x=N{1,8}", "y=N{1,4}")


def test_unknown_choice_for_outside_is_refused() -> None:
    with pytest.raises(ShapeError, match="outside"):
        Shapes("x=N", outside="ignore")  # type: ignore[arg-type]
