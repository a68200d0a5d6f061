from __future__ import annotations

from pathlib import Path

import pytest

from trivet.cache import Cache
from trivet.cli.words import (
    REASONS,
    bucket_in_words,
    difference_in_words,
    field_in_words,
    value_in_words,
)
from trivet.events import MissReason
from trivet.keys import ABSENT, FieldDifference
from trivet.plans.backend import Backend
from trivet.plans.backends import OnnxRuntime, OpenVino
from trivet.plans.plans import Plans

_FALLBACK = field_in_words("no such field")


@pytest.mark.parametrize("reason", MissReason)
def test_every_miss_reason_has_words(reason: MissReason) -> None:
    assert len(REASONS[reason].split()) > 3


@pytest.mark.parametrize("backend", [OnnxRuntime(threads=1), OpenVino(threads=1)])
def test_every_key_field_of_a_backend_has_words(backend: Backend, model: Path) -> None:
    ((_, key),) = Plans(Cache(None), backend).keys(model)
    unnamed = [name for name in key if field_in_words(name) == _FALLBACK]
    assert [name for name in unnamed if not isinstance(key[name], dict)] == []
    for name in unnamed:
        inner = [f"{name}.{each}" for each in key[name]]
        assert [each for each in inner if field_in_words(each) == _FALLBACK] == []


def test_of_two_lists_only_what_the_other_lacks_is_said() -> None:
    difference = FieldDifference("host.instruction_set", ("avx", "avx512f"), ("avx", "sse2"))
    assert difference_in_words(difference) == ("also avx512f", "also sse2")
    narrower = FieldDifference("host.instruction_set", ("avx",), ("avx", "avx512f"))
    assert difference_in_words(narrower) == ("nothing more", "also avx512f")
    order = FieldDifference("extensions", ("a", "b"), ("b", "a"))
    assert difference_in_words(order) == ("the same, in another order",) * 2


def test_values_that_read_alike_are_told_apart_by_type() -> None:
    assert difference_in_words(FieldDifference("properties.N", 2, "2")) == (
        "2 (number)",
        "2 (text)",
    )


def test_digests_are_short_shapes_are_joined_and_absence_is_said() -> None:
    assert value_in_words("graph.weights", bytes(range(32))) == "000102030405…"
    assert value_in_words("backend.libraries.a", "ab" * 32) == "abababababab…"
    assert value_in_words("shapes.x", ("N", 3, None)) == "Nx3x?"
    assert value_in_words("environment.A", ABSENT) == "(not set)"
    assert value_in_words("environment.A", "") == "(empty)"


def test_a_bucket_names_each_input() -> None:
    assert bucket_in_words({"x": (8, 3), "mask": (), "z": None}) == "x=8x3 mask=scalar z=any rank"
