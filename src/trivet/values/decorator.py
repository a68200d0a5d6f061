"""The decorator `memo`."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, overload

from trivet.cache import Cache
from trivet.cache.coordinator import WAIT_SECONDS
from trivet.cache.validity import texts_of
from trivet.codecs import Codec
from trivet.values.codec import Values
from trivet.values.keys import CallKeys, Settings
from trivet.values.lifetime import ByCost
from trivet.values.memoise import Memo, MemoTerms
from trivet.values.normalise import Normaliser

if TYPE_CHECKING:
    from trivet.values.async_memoise import AsyncMemo

P = ParamSpec("P")
R = TypeVar("R")


class Decorator(Protocol):
    """What `memo` returns."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first that fits is meant
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncMemo[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Memo[P, R]: ...


def memo(
    cache: Cache,
    *,
    codec: Codec[Any] | None = None,
    version: str | None = None,
    depends: Sequence[object] = (),
    ignore: Sequence[str] = (),
    normalise: Mapping[str, Normaliser | Sequence[Normaliser]] | None = None,
    tenant: str | Callable[[], str] | None = None,
    lifetime: float | ByCost | None = None,
    stale: float = 0.0,
    early: float = 0.0,
    tags: Iterable[str] = (),
    wait: float = WAIT_SECONDS,
    record: tuple[type[Exception], ...] = (),
    record_lifetime: float = 3600.0,
) -> Decorator:
    """Keep the results of a function, a method or a coroutine function in ``cache``.

    A call is answered from the cache when everything that it is computed from is the same: the
    arguments by value, the function's code and that of its helpers, constants that it refers to,
    versions of packages. Of all threads, tasks, processes and hosts that ask at the same time one
    computes.

    Args:
        codec: how results are kept; by default `Values`, for plain data and arrays.
        version: stands for the code, which is then not looked at.
        depends: more that results depend on, such as the name and digest of a model; by value.
        ignore: parameters, and names that the code refers to, that can't change a result.
        normalise: parameter to what makes its text alike, such as ``normalise.case``.
        tenant: results are never shared between tenants; a text, or a function that says whose
            call this is.
        lifetime: seconds, or `ByCost`; None for no end.
        stale: seconds after its lifetime in which a result still answers, while one caller has it
            made anew in the background.
        early: have a result made anew before its end, by chance, and the sooner the longer that
            takes; 0 for never, 1 for the best in theory. See `lifetime.is_due`.
        tags: what else invalidates results, for `Cache.invalidate`.
        wait: seconds to wait for another call that computes the same.
        record: errors that would come again: kept, and answered as `ComputeFailed`.
        record_lifetime: seconds that a kept error answers.

    Raises `TypeError` for what is not a Python function, and for generators: what they yield
    depends on how far a caller reads. `ValueError` for ``stale`` or ``early`` without a lifetime,
    and for a lifetime that is none.
    """
    terms = MemoTerms(
        lifetime=lifetime,
        tags=texts_of(tags, "tags="),
        wait=wait,
        record=record,
        record_lifetime=record_lifetime,
        stale=stale,
        early=early,
    )
    settings = Settings(
        version=version,
        depends=tuple(depends),
        ignore=frozenset(texts_of(ignore, "ignore=")),
        normalise={
            name: (each,) if callable(each) else tuple(each)
            for name, each in (normalise or {}).items()
        },
        tenant=tenant,
    )

    def decorate(given: object) -> Any:
        function = _checked(given)
        kind = _kind_of(function, is_fresh=terms.stale > 0 or terms.early > 0)
        return kind(cache, function, CallKeys(function, settings), codec or Values(), terms)

    return cast(Decorator, decorate)


def _checked(function: object) -> types.FunctionType:
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"memo() takes a Python function, got {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(
            f"{function.__qualname__}() is a generator; let a function return a list or tuple"
        )
    return function


def _kind_of(function: Callable[..., Any], *, is_fresh: bool) -> Any:
    """The class of its memo. Each is loaded where a program needs it."""
    if inspect.iscoroutinefunction(function):
        if is_fresh:
            from trivet.values.async_fresh import AsyncFreshMemo

            return AsyncFreshMemo
        from trivet.values.async_memoise import AsyncMemo

        return AsyncMemo
    if is_fresh:
        from trivet.values.fresh import FreshMemo

        return FreshMemo
    return Memo
