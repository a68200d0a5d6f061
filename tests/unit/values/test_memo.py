"""`memo`: one computation for each different call, and nothing that a hit could get wrong."""

from __future__ import annotations

import dataclasses
import functools
import gc
import threading
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trivet import Cache, ComputeFailed, Hit, Key
from trivet.codecs import Bytes
from trivet.errors import Unkeyable
from trivet.values import ByCost, memo, normalise


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path) as cache:
        yield cache


class Calls(list[Any]):
    """Notes calls; no part of what a function computes with."""


def test_a_call_is_computed_once_and_another_process_s_cache_has_it(
    cache: Cache, tmp_path: Path
) -> None:
    calls = Calls()

    def double(x: int) -> int:
        calls.append(x)
        return 2 * x

    first = memo(cache, ignore=["calls"])(double)
    assert [first(1), first(1), first(2), first(x=1)] == [2, 2, 4, 2]
    assert calls == [1, 2]
    with Cache.open(tmp_path) as other:
        assert memo(other, ignore=["calls"])(double)(1) == 2
    assert calls == [1, 2]


def test_a_function_keeps_more_results_than_a_model_keeps_plans(
    cache: Cache, tmp_path: Path
) -> None:
    calls = Calls()

    def double(x: int) -> int:
        calls.append(x)
        return 2 * x

    first = memo(cache, ignore=["calls"])(double)
    expected = [first(each) for each in range(200)]
    with Cache.open(tmp_path) as other:
        again = memo(other, ignore=["calls"])(double)
        assert [again(each) for each in range(200)] == expected
    assert len(calls) == 200


def test_types_are_told_apart_and_defaults_are_filled_in(cache: Cache) -> None:
    calls = Calls()

    @memo(cache, ignore=["calls"])
    def name(x: object, y: object = 1, *more: object, **named: object) -> str:
        calls.append(x)
        return f"{x!r} {y!r} {more} {named}"

    for each in (1, True, 1.0, "1", -0.0, 0.0):
        assert name(each).startswith(repr(each))
    assert len(calls) == 6
    assert name(1, 1) == name(1) == name(x=1, y=1)
    assert len(calls) == 6
    assert name(1, 1, 2) != name(1, 1, z=2)


def test_a_caller_cannot_change_what_others_get(cache: Cache) -> None:
    @memo(cache)
    def compute(n: int) -> dict[str, Any]:
        return {"list": [n], "array": np.arange(n)}

    for _ in range(3):
        found = compute(3)
        assert found["list"] == [3]
        assert found["array"].tolist() == [0, 1, 2]
        found["list"].append(4)
        with pytest.raises(ValueError, match="read-only"):
            found["array"][0] = 7


def test_methods_count_their_instance(cache: Cache) -> None:
    @dataclasses.dataclass
    class Model:
        scale: int

        @memo(cache)
        def run(self, x: int) -> int:
            return self.scale * x

    assert [Model(2).run(3), Model(3).run(3), Model(2).run(3)] == [6, 9, 6]
    assert Model(2).run.forget(3)
    assert not Model(2).run.forget(3)


def test_errors_are_not_kept_unless_it_is_said(cache: Cache) -> None:
    calls = Calls()

    @memo(cache, ignore=["calls"], record=(LookupError,))
    def fail(kind: str) -> None:
        calls.append(kind)
        raise {"bad": LookupError, "worse": ValueError}[kind](kind)

    for _ in range(2):
        with pytest.raises(ValueError, match="worse"):
            fail("worse")
    with pytest.raises(LookupError):
        fail("bad")
    with pytest.raises(ComputeFailed, match="LookupError"):
        fail("bad")
    assert calls == ["worse", "worse", "bad"]


def test_tenants_share_nothing(cache: Cache) -> None:
    who, calls = ["a"], Calls()

    @memo(cache, ignore=["calls", "who"], tenant=lambda: who[0])
    def ask(x: int) -> int:
        calls.append(who[0])
        return x

    ask(1)
    who[0] = "b"
    ask(1)
    who[0] = "a"
    ask(1)
    assert calls == ["a", "b"]


def test_texts_that_mean_the_same_share_where_it_is_said(cache: Cache) -> None:
    calls = Calls()

    @memo(
        cache,
        ignore=["calls"],
        normalise={"text": (normalise.nfkc, normalise.case, normalise.space)},
    )
    def ask(text: str) -> int:
        calls.append(text)
        return len(text)

    for each in ("Hello World", " hello  world ", "\uff28ELLO world"):
        ask(each)
    assert len(calls) == 1
    ask("hello, world")
    assert len(calls) == 2


def test_invalidating_the_tag_drops_all_values_of_the_function(cache: Cache) -> None:
    calls = Calls()

    @memo(cache, ignore=["calls"])
    def double(x: int) -> int:
        calls.append(x)
        return 2 * x

    double(1), double(2)
    cache.invalidate(double.tag)
    double(1), double(2)
    assert calls == [1, 2, 1, 2]


def test_why_names_the_argument_that_differs(cache: Cache) -> None:
    @memo(cache)
    def ask(text: str, limit: int = 3) -> str:
        return text[:limit]

    assert ask.why("hello") is None
    ask("hello")
    assert ask.why("hello") == ()
    differences = ask.why("hello", 4)
    assert differences is not None
    assert [(each.name, each.mine, each.theirs) for each in differences] == [
        ("arguments.limit", 4, 3)
    ]


def test_what_has_no_form_is_an_error_that_says_what_to_do(cache: Cache) -> None:
    @memo(cache)
    def ask(client: object) -> int:
        return 1

    with pytest.raises(Unkeyable, match=r"argument client of .*ask\(\)") as refused:
        ask(threading.Lock())
    assert "ignore=('client',)" in str(refused.value)


def test_a_lifetime_follows_the_cost() -> None:
    lifetime = ByCost(factor=100, least=1, most=50)
    assert [lifetime.seconds(each) for each in (0.0, 0.1, 0.2, 9.0)] == [1, 10, 20, 50]
    with pytest.raises(ValueError, match="positive"):
        ByCost(least=9, most=1)


def test_threads_compute_once(cache: Cache) -> None:
    calls, start = Calls(), threading.Barrier(8)

    @memo(cache, ignore=["calls"])
    def slow(x: int) -> int:
        calls.append(x)
        done.wait(5)
        return x

    done = threading.Event()
    slow = memo(cache, ignore=["calls", "done"])(slow.function)

    def ask() -> None:
        start.wait()
        results.append(slow(1))

    results: list[int] = []
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    done.set()
    for each in threads:
        each.join()
    assert results == [1] * 8
    assert calls == [1]


def test_a_check_computes_a_sample_again_and_forgets_what_is_wrong(cache: Cache) -> None:
    world = {"offset": 0}

    @memo(cache, ignore=["world"])  # a lie
    def add(x: int) -> int:
        return x + world["offset"]

    assert add.check().calls == 0
    for x in range(30):
        add(x)
    checked = add.check()
    assert (checked.calls, checked.wrong) == (20, ())
    world["offset"] = 1
    checked = add.check([(3,), (4,), (99,)])
    assert checked.calls == 2
    assert sorted((each.args, each.kept, each.computed) for each in checked.wrong) == [
        ((3,), 3, 4), ((4,), 4, 5),
    ]  # fmt: skip
    assert (add(3), add(5)) == (4, 5)
    assert add.check(sample=100, same=lambda a, b: abs(a - b) <= 1).wrong == ()


@pytest.mark.usefixtures("threads_that_take_turns")
def test_threads_of_different_tenants_never_get_each_other_s(cache: Cache) -> None:
    here = threading.local()

    @memo(cache, ignore=["here"], tenant=lambda: here.tenant)
    def ask(x: int) -> str:
        return f"{here.tenant} {x}"

    def work(tenant: str) -> None:
        here.tenant = tenant
        wrong.extend(answer for n in range(3000) if (answer := ask(n % 5)) != f"{tenant} {n % 5}")

    wrong: list[str] = []
    threads = [threading.Thread(target=work, args=[each]) for each in "abc"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_the_code_of_an_argument_s_class_counts(cache: Cache) -> None:
    def model(factor: int) -> Any:
        @dataclasses.dataclass
        class Model:
            scale: int

            @memo(cache, version="1")
            def run(self, x: int) -> int:
                return self.scaled(x)

            def scaled(self, x: int) -> int:
                return factor * self.scale * x

        return Model(2)

    before, same, edited = model(1), model(1), model(10)
    assert [before.run(3), same.run(3), edited.run(3)] == [6, 6, 60]
    assert before.run.key(3) == same.run.key(3)
    (difference,) = edited.run.key(3).diff(before.run.key(3))
    assert difference.name == "arguments.self"


def test_a_function_that_changes_what_it_computes_from_is_not_kept(
    cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    @memo(cache)
    def count(x: int) -> int:
        seen.append(x)
        return len(seen)

    @memo(cache)
    def pop(items: list[int]) -> int:
        return items.pop()

    assert [count(1), count(1)] == [1, 2]
    assert "count() changes what it is computed from: version; nothing is kept" in caplog.text
    items = [1, 2]
    assert (pop(items), items) == (2, [1])
    assert (pop(items), items) == (1, [])
    assert pop([1, 2]) == 2
    assert "pop() changes what it is computed from: arguments.items" in caplog.text
    assert count.map([1, 1]) == [3, 3]
    assert not list(cache.entries())


def test_a_call_of_nobody_is_refused_where_tenants_are_told_apart(cache: Cache) -> None:
    for nobody in (None, "", 0):

        @memo(cache, tenant=lambda: nobody)  # type: ignore[arg-type, return-value]
        def ask(x: int) -> int:
            return x

        with pytest.raises(Unkeyable, match="tenant of a call"):
            ask(1)


def test_an_ignored_parameter_is_no_ignored_global_of_a_helper(cache: Cache) -> None:
    def program(k: int) -> Any:
        space: dict[str, Any] = {"__name__": "program", "limit": k}
        exec("def helper(x): return x * limit\ndef f(x, limit): return helper(x)", space)
        return memo(cache, ignore=["limit"])(space["f"])

    assert [program(2)(3, "a"), program(2)(3, "b"), program(5)(3, "a")] == [6, 6, 15]


@pytest.mark.usefixtures("threads_that_take_turns")
def test_code_that_changes_under_threads_is_never_stored_under_the_old_key(cache: Cache) -> None:
    space: dict[str, Any] = {"__name__": "program", "K": 0}
    exec("def f(x): return (K, K)", space)
    ask = memo(cache)(space["f"])
    versions = 300

    def change() -> None:
        for k in range(1, versions):  # never back: who reads twice the same can't know of between
            space["K"] = k
            ask(-1)

    def work() -> None:
        while space["K"] < versions - 1:
            ask(0)

    threads = [threading.Thread(target=each) for each in (change, work, work)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    kept = 0
    for k in range(versions):
        space["K"] = k
        found = ask.look(0)
        if isinstance(found, Hit):
            assert found.value == (k, k)
            kept += 1
    assert kept


def test_a_decorated_function_is_called_by_its_own_defaults(cache: Cache) -> None:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def inner(x: int, k: int = 5) -> Any:
            return function(x, k)

        return inner

    @memo(cache)
    @decorate
    def both(x: int, k: int = 1) -> list[int]:
        return [x, k]

    assert [both(3), both(3, 1), both(3)] == [[3, 5], [3, 1], [3, 5]]


def test_parameters_of_what_a_decorator_hides_can_t_be_named(cache: Cache) -> None:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def inner(*args: Any) -> Any:
            return function(*args)

        return inner

    @decorate
    def ask(client: object, x: int) -> int:
        return x

    with pytest.raises(TypeError, match="client is a parameter of what it wraps"):
        memo(cache, ignore=["client"])(ask)


def test_another_normaliser_shares_nothing_with_the_one_before(cache: Cache) -> None:
    def program(normaliser: Any) -> Any:
        @memo(cache, normalise={"text": normaliser})
        def same(text: str) -> str:
            return text

        return same

    assert program(lambda text: text.casefold())("HELLO") == "HELLO"
    assert program(lambda text: text.strip())("hello") == "hello"


def test_methods_of_classes_count_their_class(cache: Cache) -> None:
    class Model:
        @classmethod
        @memo(cache)
        def name(cls, x: int) -> list[Any]:
            return [cls.__name__, x]

    class Child(Model):
        pass

    assert [Model.name(1), Child.name(1)] == [["Model", 1], ["Child", 1]]


def test_functions_that_were_arguments_are_let_go(cache: Cache) -> None:
    @memo(cache)
    def apply(function: Any, x: int) -> int:
        return int(function(x))

    made = []
    for n in range(600):
        function = eval(f"lambda x: x + {n}")
        assert apply(function, 1) == 1 + n
        made.append(weakref.ref(function))
        del function
    gc.collect()
    assert sum(each() is not None for each in made) < 300


def test_one_text_in_the_place_of_several_is_refused(cache: Cache) -> None:
    """Its letters would be taken: for parameters to ignore, for tags that nobody invalidates."""
    for given in ({"tags": "index"}, {"ignore": "name"}):
        with pytest.raises(TypeError, match="several texts"):
            memo(cache, **given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="several texts"):
        cache.get_or_compute(Key("value/1", {}), lambda: b"", Bytes(), tags="index")


@pytest.mark.parametrize("lifetime", [-1, float("nan"), float("inf"), "60", timedelta(seconds=1)])
def test_a_lifetime_that_is_none_is_refused_before_anything_is_computed(
    cache: Cache, lifetime: Any
) -> None:
    for given in ({"lifetime": lifetime}, {"record_lifetime": lifetime}):
        with pytest.raises(ValueError, match="in seconds"):
            memo(cache, **given)


def test_what_a_memo_states_counts_for_those_that_call_it(cache: Cache) -> None:
    def search_with(**stated: Any) -> bytes:
        @memo(cache, **stated)
        def embed(text: str) -> str:
            return text

        @functools.lru_cache
        @memo(cache, **stated)
        def cached(text: str) -> str:
            return text

        class Index:
            embed = memo(cache, **stated)(lambda self, text: text)

        @memo(cache)
        def search(text: str) -> str:
            return embed(text)

        @memo(cache)
        def search_cached(text: str) -> str:
            return cached(text)

        @memo(cache)
        def search_index(text: str) -> str:
            return Index().embed(text)

        keys = [each.key("x").digest for each in (search, search_cached, search_index)]
        assert len({*keys}) == len(keys)
        return b"".join(keys)

    def lower(text: str) -> str:
        return text.lower()

    stated: list[dict[str, Any]] = [
        {},
        {"depends": ["encoder-3"]},
        {"depends": ["encoder-4"]},
        {"version": "4"},
        {"normalise": {"text": lower}},
    ]
    keys = [search_with(**each) for each in stated]
    assert keys == [search_with(**each) for each in stated]
    for at in range(0, len(keys[0]), 32):
        assert len({each[at : at + 32] for each in keys}) == len(stated)


def test_the_instance_of_a_bound_memo_counts_for_those_that_call_it(cache: Cache) -> None:
    @dataclasses.dataclass
    class Scale:
        by: int

        @memo(cache)
        def of(self, x: int) -> int:
            return self.by * x

    def total_with(scale: Any) -> int:
        @memo(cache)
        def total(x: int) -> int:
            return scale(x) + 1  # type: ignore[no-any-return]

        return total(1)

    assert [total_with(Scale(by).of) for by in (2, 3, 2)] == [3, 4, 3]


def test_what_is_of_one_tenant_is_not_called_by_what_all_share(cache: Cache) -> None:
    who = ["a"]

    def tenant() -> str:
        return who[0]

    @memo(cache, tenant=tenant, ignore=["who"])
    def secret(x: int) -> str:
        return f"{who[0]}'s {x}"

    @memo(cache)
    def shared(x: int) -> str:
        return secret(x)

    @memo(cache, tenant=tenant)
    def own(x: int) -> str:
        return secret(x)

    with pytest.raises(Unkeyable, match="of one tenant each"):
        shared(1)
    assert own(1) == "a's 1"
    who[0] = "b"
    assert own(1) == "b's 1"
