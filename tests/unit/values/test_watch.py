"""What a memo asks at each call: whether names lead where they led, and contents are the same."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from trivet.errors import Unkeyable
from trivet.values.functions import Identity
from trivet.values.watch import MISSING, Watch, is_same

Load = Callable[..., types.ModuleType]
OFTEN = 60  # after so many checks they have been compiled

CHANGES = [
    ("K = 1\ndef f(x): return K", "K = 2"),
    ("K = 1\ndef f(x): return K", "K = True"),
    ("K = 0.0\ndef f(x): return K", "K = -0.0"),
    ("K = (1, 2)\ndef f(x): return K", "K = (1, 2.0)"),
    ("def g(x): return 1\ndef f(x): return g(x)", "def g(x): return 2"),
    ("def g(x): return 1\ndef f(x): return g(x)", "g.__code__ = (lambda x: 2).__code__"),
    ("def f(x, k=1): return k", "f.__defaults__ = (2,)"),
    ("def f(x, *, k=1): return k", "f.__kwdefaults__ = {'k': 2}"),
    ("def f(x): return len(x)", "def len(x): return 2"),
    ("def len(x): return 2\ndef f(x): return len(x)", "del len"),
    ("def m(k):\n    def f(x): return k\n    def g(n):\n        nonlocal k\n        k = n\n"
     "    return f, g\nf, g = m(1)", "g(True)"),
    ("def m(k):\n    def f(x): return k\n    def g():\n        nonlocal k\n        del k\n"
     "    return f, g\nf, g = m(1)", "g()"),
    ("import settings\ndef f(x): return settings.K", "settings.K = 1.0"),
    ("import settings\ndef f(x): return settings.K", "del settings.K"),
    ("import settings\ndef f(x): return settings.L", "settings.L = 1"),
    ("class C: k = 1\ndef f(x): return C.k", "C.k = True"),
    ("class C: k = 1\ndef f(x): return C.k", "del C.k"),
    ("class C: k = 1\ndef f(x): return C.k", "C.l = 1"),
    ("class A: k = 1\nclass B: k = 2\nclass C(A): pass\ndef f(x): return C.k",
     "C.__bases__ = (B,)"),
    ("T = [1]\ndef f(x): return T", "T[0] = True"),
    ("T = {1: 0.0}\ndef f(x): return T", "T[1] = -0.0"),
    ("T = ([1],)\ndef f(x, t=T): return t", "T[0].append(2)"),
    ("def g(x): return 1\nT = [g]\ndef f(x): return T", "T[0] = lambda x: 2"),
    ("import functools\n@functools.singledispatch\ndef g(x): return 0\ndef f(x): return g(x)",
     "g.register(int, lambda x: 1)"),
]  # fmt: skip


@pytest.mark.parametrize("often", [1, OFTEN])
@pytest.mark.parametrize(("source", "change"), CHANGES)
def test_a_change_is_noticed_at_the_first_check_and_after_many(
    load: Load, source: str, change: str, often: int
) -> None:
    load("K = 1", "settings")
    program = load(source)
    watch, digest = Identity(program.f).now()
    for _ in range(often):
        assert watch.holds()
    exec(change, vars(program))
    assert not watch.holds()
    assert not watch.holds()
    assert Identity(program.f).digest() != digest


@pytest.mark.parametrize("often", [1, OFTEN])
def test_what_comes_back_holds_again(load: Load, often: int) -> None:
    program = load("K = object\ndef f(x): return K, len(x)")
    watch, _ = Identity(program.f).now()
    for _ in range(often):
        assert watch.holds()
    found = program.K
    del program.K
    assert not watch.holds()
    program.K = found
    assert watch.holds()


def test_names_that_are_no_identifiers_and_places_without_a_value() -> None:
    owner, empty = types.SimpleNamespace(**{"class": 1, "a b": 2}), types.CellType()
    watch = Watch()
    assert [watch.attribute(owner, "class"), watch.attribute(owner, "a b")] == [1, 2]
    assert watch.attribute(owner, "absent") is watch.cell(empty) is MISSING
    assert watch.item({"it's": 3}, "it's") == 3
    for _ in range(OFTEN):
        assert watch.holds()
    empty.cell_contents = 1
    assert not watch.holds()
    del empty.cell_contents
    assert watch.holds()
    setattr(owner, "a b", 3)
    assert not watch.holds()


def test_a_program_of_many_names_is_watched_name_by_name(load: Load) -> None:
    names = [f"k{n}" for n in range(500)]
    program = load(
        "\n".join(f"{each} = 1" for each in names) + f"\ndef f(x): return {names}".replace("'", "")
    )
    watch, _ = Identity(program.f).now()
    for _ in range(OFTEN):
        assert watch.holds()
    program.k499 = 2
    assert not watch.holds()


def test_what_led_to_two_objects_during_one_walk_never_holds() -> None:
    owner, watch = {"k": [1]}, Watch()
    watch.item(owner, "k")
    owner["k"] = [1]
    watch.item(owner, "k")
    assert not watch.holds()


def test_what_has_no_form_any_more_does_not_hold_and_other_errors_are_told() -> None:
    def look() -> Any:
        if error is not None:
            raise error
        return 1

    error: Exception | None = None
    watch = Watch()
    watch.equal(look)
    for _ in range(OFTEN):
        assert watch.holds()
    error = Unkeyable("a lock")
    assert not watch.holds()
    error = KeyError("a bug in what was registered")
    with pytest.raises(KeyError, match="a bug"):
        watch.holds()


def test_only_the_same_type_and_bits_are_the_same() -> None:
    forms = [
        None, False, 0, 0.0, -0.0, True, 1, 1.0, "", b"", "1", b"1", (), [], (1,), (True,), (1.0,),
        [1], ((0.0,),), ((-0.0,),), (1, 1), object(), print,
    ]  # fmt: skip
    for (n, one), (m, other) in product(enumerate(forms), enumerate(forms)):
        assert is_same(one, other) == (n == m), (one, other)
    assert is_same(("a", (1, 2.5, b"x")), ("a", (1, 2.5, b"x")))
    assert is_same((float("nan"),), (math.nan,))
    assert not is_same({}, {})
