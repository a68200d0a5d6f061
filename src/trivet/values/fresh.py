"""Memos whose results are made anew in the background, before their lifetime ends or after."""

from __future__ import annotations

import contextvars
import functools
import random
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trivet.cache import Failed, Hit, Lease, Miss
from trivet.entries import Descriptor
from trivet.events import MissReason
from trivet.keys import Key
from trivet.values.lifetime import is_due
from trivet.values.memoise import BaseMemo, Memo

if TYPE_CHECKING:
    from trivet.cache.refreshes import Turn

P = ParamSpec("P")
R = TypeVar("R")


class BaseFresh(BaseMemo[P, R]):
    """What such memos of functions and of coroutine functions have in common."""

    chance = staticmethod(random.random)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._refreshes = self._cache.engine.refreshes()

    def look(self, *args: P.args, **kwargs: P.kwargs) -> Hit[R] | Failed | Miss:
        """What is kept of this call, and `Hit.stale` where its lifetime is over; never computes."""
        found = super().look(*args, **kwargs)
        if type(found) is Miss and self._terms.stale:
            return self._look_stale(self._keys.key(args, kwargs)) or found
        return found

    def _look_stale(self, key: Key, *, live: bool = False) -> Hit[R] | None:
        return self._cache.engine.look_stale(key, self._codec, self._terms.stale, live=live)

    def _turn(self, key: Key, found: Hit[R]) -> Turn | None:
        """The turn to make ``key`` anew, where it is due and nobody has it."""
        if not found.stale:
            facts, early = found.descriptor, self._terms.early
            if not early or facts.expires is None:
                return None
            now = self._cache.clock.time()
            if not is_due(now, facts.expires, facts.cost, early, self.chance()):
                return None
        return self._refreshes.begin(key)

    def _may_compute(self, turn: Turn, lease: Lease[R], now: Key) -> bool:
        """Whether to compute under ``lease``, the call's key being ``now``; else it is given up."""
        if lease.reason is MissReason.WAIT_TIMEOUT:
            turn.busy()
        elif now != lease.key:
            turn.failed(self._other(lease.key, now))
        else:
            return True
        lease.abandon()
        return False

    def _settle(self, turn: Turn, lease: Lease[R], value: R, cost: float, after: Key) -> None:
        if after == lease.key:
            self.keep(lease, value, cost, after)
            turn.done()
        else:
            why = self._other(lease.key, after)
            lease.drop(value, why)
            turn.failed(why)

    def _other(self, key: Key, now: Key) -> str:
        fields = ", ".join(each.name for each in key.diff(now))
        return f"{self._keys.name}() is another call in the background, by: {fields}"


class FreshMemo(BaseFresh[P, R], Memo[P, R]):
    """A `Memo` whose results are made anew in threads of the cache."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = self._keys.key(args, kwargs)
        found = self._look_live(key, self._codec)
        if found is None and self._terms.stale:
            found = self._look_stale(key)
        if type(found) is Hit:
            turn = self._turn(key, found)
            if turn is not None:
                self._start(turn, found.descriptor, args, kwargs)
            return found.value
        return self._missing(key, args, kwargs)

    def _start(
        self, turn: Turn, old: Descriptor, args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> None:
        run = contextvars.copy_context().run
        try:
            self._refreshes.start(
                functools.partial(run, self._make_anew, turn, old, own(args), own(named))
            )
        except (MemoryError, RuntimeError) as error:  # its caller has a value all the same
            turn.failed(f"the arguments can't be copied: {error}")

    def _make_anew(
        self, turn: Turn, old: Descriptor, args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        try:
            lease = self._cache.acquire(
                turn.key, self._codec, tags=self._tags, wait=0.0, replacing=old
            )
            if not isinstance(lease, Lease):
                turn.done()  # by somebody else
                return
            with lease:
                if self._may_compute(turn, lease, self._keys.key(args, named)):
                    started = self.seconds()
                    value = self.function(*args, **named)
                    cost, after = self.seconds() - started, self._keys.key(args, named)
                    self._settle(turn, lease, value, cost, after)
        except Exception as error:  # noqa: BLE001  nobody asked for it whom it could reach
            turn.failed(f"{type(error).__qualname__}: {error}")
        finally:
            turn.end()


def own(given: Any) -> Any:
    """``given``, without what a caller may write into while it is computed from.

    Lists, dicts, sets, byte arrays, NumPy arrays and tensors are copied; other objects are not.
    """
    kind = type(given)
    if kind in (list, tuple):
        return kind(map(own, given))
    if kind is dict:
        return {name: own(each) for name, each in given.items()}
    if kind in (set, bytearray):
        return given.copy()
    for module, name in (("numpy", "ndarray"), ("torch", "Tensor")):
        found = sys.modules.get(module)
        if found is not None and kind is getattr(found, name, None):
            if module == "numpy":
                return given.copy(order="K")
            return given.detach().clone().requires_grad_(given.requires_grad)
    return given
