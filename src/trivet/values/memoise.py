"""Functions whose results are kept, by what they compute from."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

import msgspec

from trivet import log
from trivet.cache import Cache, Failed, Hit, Lease, Miss
from trivet.cache.lease import computing
from trivet.codecs import Codec
from trivet.keys import FieldDifference, Key
from trivet.values.keys import BoundKeys, CallKeys
from trivet.values.lifetime import ByCost
from trivet.values.walk import Wrapper
from trivet.values.watch import MISSING

if TYPE_CHECKING:
    from trivet.cache.changes import Change
    from trivet.cache.fill import Filled, Mark
    from trivet.values.checking import Checked
    from trivet.values.nodes import Node

P = ParamSpec("P")
R = TypeVar("R")


class MemoTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a memo's author said about what is kept; see `memo`. Raises ValueError."""

    lifetime: float | ByCost | None
    tags: tuple[str, ...]
    wait: float
    record: tuple[type[Exception], ...]
    record_lifetime: float
    stale: float = 0.0
    early: float = 0.0

    def __post_init__(self) -> None:
        lifetime = self.lifetime
        lives = 0.0 if lifetime is None or isinstance(lifetime, ByCost) else lifetime
        for each in (lives, self.record_lifetime):
            if not (isinstance(each, int | float) and 0 <= each < math.inf):
                raise ValueError(f"a lifetime is in seconds, or None for no end; got {each!r}")
        if not all(0 <= each < math.inf for each in (self.stale, self.early)):
            raise ValueError("stale= is in seconds and early= a factor; neither is negative")
        if (self.stale or self.early) and lifetime is None:
            raise ValueError(
                "stale= and early= are about the end of a lifetime: give lifetime=, too"
            )


class Inputs(msgspec.Struct):
    """What a value depends on by way of other memos' values that it is computed from.

    Attributes:
        tags: all of theirs.
        ends: when the first of their lifetimes ends, in seconds since the epoch; afterwards, when
            that of the value does.
    """

    tags: tuple[str, ...] = ()
    ends: float = math.inf


class BaseMemo(Wrapper, Generic[P, R]):
    """What memos of functions and of coroutine functions have in common.

    Attributes:
        function: the one below, which always computes.
        tag: of all its entries, in every version; ``cache.invalidate(memo.tag)`` drops them.
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        cache: Cache,
        function: Callable[P, Any],
        keys: CallKeys,
        codec: Codec[R],
        terms: MemoTerms,
    ) -> None:
        functools.update_wrapper(cast(Any, self), function)
        self.function = function
        self.tag = f"function={keys.name}"
        self._cache = cache
        cache.register_codec(codec)
        self._look_live = cache.engine.look_live
        self._read: Callable[[Key, object], Any] = cache.engine.reader(codec)
        self._keys: CallKeys | BoundKeys = keys
        self.stated, self.has_tenants = keys.stated, keys.has_tenants
        self._codec = codec
        self._terms = terms
        self._tags = (self.tag, *terms.tags)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a method: the instance is the first argument, and part of the key."""
        if instance is None:
            return self
        bound = object.__new__(type(self))
        vars(bound).update(vars(self))
        bound.function = functools.partial(cast(Any, self.function), instance)
        bound._keys = BoundKeys(self._keys, instance)
        bound.stated = (*self.stated, instance)
        return bound

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By its name, as functions are pickled: the process that reads it has a cache of its own.

        Raises `TypeError` where its name doesn't lead to it.
        """
        if isinstance(self._keys, BoundKeys):
            return getattr, (self._keys.instance, self.__name__)
        found: object = sys.modules.get(self.__module__)
        for each in self.__qualname__.split("."):
            found = getattr(found, each, None)
        if found is not self:
            raise TypeError(
                f"a memo is pickled by its name, and {self.__module__}.{self.__qualname__} is not "
                "this one; define it where its module begins, and send that"
            )
        return self.__qualname__

    @property
    def cache(self) -> Cache:
        """Where results are kept."""
        return self._cache

    def key(self, *args: P.args, **kwargs: P.kwargs) -> Key:
        """The key of this call. Raises `Unkeyable`."""
        return self._keys.key(args, kwargs)

    def look(self, *args: P.args, **kwargs: P.kwargs) -> Hit[R] | Failed | Miss:
        """What is kept of this call; never computes."""
        return self._cache.get(self._keys.key(args, kwargs), self._codec)

    def look_since(
        self, known: bytes, /, *args: P.args, **kwargs: P.kwargs
    ) -> Change[R] | Failed | Miss:
        """What of this call's value has changed since its version ``known``, see `Cache.get`;
        never computes."""
        return self._cache.get(self._keys.key(args, kwargs), self._codec, known=known)

    def forget(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Forget this call's value; True if one was kept."""
        return self._cache.forget(self._keys.key(args, kwargs))

    def why(self, *args: P.args, **kwargs: P.kwargs) -> tuple[FieldDifference, ...] | None:
        """In what this call differs from the nearest one that is kept: nothing when it is kept
        itself, None when nothing is kept at all."""
        near = self._cache.nearest(self._keys.key(args, kwargs))
        return near[0].differences if near else None

    def fill(
        self,
        rows: Iterable[tuple[Key, R, float]],
        *,
        mark: Mark | None = None,
        progress: Callable[[Filled], object] | None = None,
    ) -> Filled:
        """Keep values that were computed elsewhere: of each the `key` of its call, the value, and
        the seconds that computing it takes. See `Cache.fill`."""
        lifetime = self._terms.lifetime
        return self._cache.fill(
            rows,
            self._codec,
            tags=self._tags,
            lifetime=lifetime.seconds if isinstance(lifetime, ByCost) else lifetime,
            stale=self._terms.stale,
            mark=mark,
            progress=progress,
        )

    def seconds(self) -> float:
        """Of the cache's clock."""
        return self._cache.clock.monotonic()

    def tags_with(self, inputs: Inputs | None) -> tuple[str, ...]:
        """What invalidates a value that is computed from ``inputs``."""
        return self._tags if inputs is None else (*self._tags, *inputs.tags)

    def keep(
        self, lease: Lease[R], value: R, cost: float, after: Key, inputs: Inputs | None = None
    ) -> R:
        """Keep ``value``, which took ``cost`` seconds; returns what a hit would give.

        ``after`` is the call's key as it is now: where it is another, the function has changed what
        it computed from, and nothing is kept.
        """
        if after == lease.key:
            lifetime = self._terms.lifetime
            if isinstance(lifetime, ByCost):
                lifetime = lifetime.seconds(cost)
            if inputs is not None:
                now = self._cache.clock.time()
                ends = min(inputs.ends, math.inf if lifetime is None else now + lifetime)
                lifetime = None if ends == math.inf else max(0.0, ends - now)
                inputs.ends = ends
            stale = self._terms.stale
            lease.commit(value, cost=cost, lifetime=lifetime, stale=stale)
        else:
            fields = ", ".join(each.name for each in lease.key.diff(after))
            why = f"{self._keys.name}() changes what it is computed from: {fields}"
            log.warning("%s; nothing is kept", why)
            lease.drop(value, why)
        # So that a first caller can't do what later ones can't, such as write into an array.
        return self._codec.decode(memoryview(self._codec.encode(value)))


class Memo(BaseMemo[P, R]):
    """A function with its results kept. Call it as the function; see `memo`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = self._keys.key(args, kwargs)
        value = self._read(key, MISSING)
        return self._missing(key, args, kwargs) if value is MISSING else value

    def _missing(self, key: Key, args: tuple[Any, ...], named: Mapping[str, Any]) -> R:
        # Not in `__call__`: what lambdas capture would make each hit a tenth slower.
        return self.value_of(
            key,
            lambda: functools.partial(self.function, *args, **named),
            lambda: self._keys.key(args, named),
        )

    def node(self, *args: Any, **kwargs: Any) -> Node[R]:
        """This call, to be made when its value is needed. Arguments may be, or hold, other nodes.

        Equal nodes are computed once, over requests, processes and hosts, and those below a node
        that is kept not at all.
        """
        from trivet.values.nodes import Node, check_below  # most memos never make one

        check_below(self._keys.name, args, kwargs)
        return Node(self, args, kwargs)

    def map(
        self,
        items: Iterable[Any],
        compute: Callable[[list[Any]], Sequence[R]] | None = None,
        **named: Any,
    ) -> list[R]:
        """The values of ``[self(each, **named) for each in items]``, in that order.

        Items that are alike are computed once, and what is missing in one call of
        ``compute(missing)``, which returns a value for each; by default one after the other. Where
        others are computing some of them, these are waited for after the rest was computed.
        """
        from trivet.values.many import look_up_many  # most memos never use it

        if compute is None:

            def compute(missing: list[Any]) -> list[R]:
                return [self.function(each, **named) for each in missing]

        return look_up_many(self, list(items), compute, named)

    def check(
        self,
        calls: Iterable[tuple[Any, ...]] | None = None,
        *,
        sample: int = 20,
        same: Callable[[R, R], bool] | None = None,
    ) -> Checked[R]:
        """Compute some of the kept calls again, and forget those that come out otherwise.

        Args:
            calls: positional arguments of calls; by default those that this process has made with
                numbers, texts and bytes alone, the last few thousand.
            sample: how many to compute, drawn at random of those that are kept.
            same: whether two values are equal; by default, when they would be kept as the same
                bytes. Give one with a tolerance for a function that sums in parallel.
        """
        from trivet.values.checking import check  # rarely needed

        def as_bytes(first: R, second: R) -> bool:
            return bytes(self._codec.encode(first)) == bytes(self._codec.encode(second))

        return check(self, self._keys.made() if calls is None else calls, sample, same or as_bytes)

    # -- for `map` and `node` ------------------------------------------------------------------

    def take(
        self, key: Key, wait: float = 0.0, inputs: Inputs | None = None
    ) -> Hit[R] | Failed | Lease[R]:
        """What is kept, or the right to compute it."""
        return self._cache.acquire(key, self._codec, tags=self.tags_with(inputs), wait=wait)

    def value_of(
        self,
        key: Key,
        prepare: Callable[[], Callable[[], R]],
        key_after: Callable[[], Key],
        inputs: Inputs | None = None,
    ) -> R:
        """What is kept under ``key``, else what the function that ``prepare`` returns does.

        Only that function's time is the value's cost. ``key_after`` makes the key anew afterwards.
        ``inputs`` may be filled in by ``prepare``, and says afterwards when the value ends.
        """
        terms = self._terms
        found = self.take(key, terms.wait, inputs)
        if isinstance(found, Hit):
            if inputs is not None and found.descriptor.expires is not None:
                inputs.ends = found.descriptor.expires
            return found.value
        if isinstance(found, Failed):
            raise found.error()
        with found as lease, computing((lease,)):
            try:
                compute = prepare()
                started = self.seconds()
                value = compute()
            except terms.record as error:
                lease.refuse(error, lifetime=terms.record_lifetime)
                raise
            cost = self.seconds() - started
            return self.keep(lease, value, cost, key_after(), inputs)
