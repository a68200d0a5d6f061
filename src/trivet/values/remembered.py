"""Keys of calls that were made before, by their arguments."""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from trivet.keys import Key
from trivet.values.watch import Watch

_PLAIN = frozenset({str, int, float, bytes, bool, type(None)})
CALLS = 4096
_LARGEST = 2048  # bytes of a call's arguments; those of larger calls are not held on to


class Remembered:
    """The keys of calls with plain arguments, the last few thousand.

    Of all else neither equal nor identical values are known to be the same. So nothing but numbers,
    texts and bytes is remembered: not what is in a tuple, where ``1`` and ``True`` are equal, and
    no zeros of floats, since ``0.0`` equals ``-0.0``.

    Args:
        watch: tells how long the keys hold.
        make: makes the key of a call.
        calls: how many are remembered.
    """

    def __init__(
        self,
        watch: Watch,
        make: Callable[[tuple[Any, ...], Mapping[str, Any]], Key],
        calls: int = CALLS,
    ) -> None:
        self.watch = watch
        self.make = make
        self._calls: deque[tuple[Any, ...]] = deque(maxlen=calls)
        # Of the standard library, as it tells types apart and evicts in C: a tenth of the time.
        self.known = functools.lru_cache(calls, typed=True)(self._make_known)

    def calls(self) -> list[tuple[Any, ...]]:
        """Arguments of those calls that named none."""
        calls = self._calls.copy()  # in one step, as other threads add to it
        return list({(each, (*map(type, each),)): each for each in calls}.values())

    def _make_known(self, /, *args: Any, **named: Any) -> Key:
        key = self.make(args, named)
        given = (*args, *named.values())
        if not all(map(is_plain, given)) or sum(map(sys.getsizeof, given)) > _LARGEST:
            raise NotRemembered(key)
        if not named:
            self._calls.append(args)
        return key


class NotRemembered(Exception):
    """Carries a key past `functools.lru_cache`, which keeps whatever is returned."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self.key = key


def is_plain(value: object) -> bool:
    """Whether whatever has its type and equals it has its form."""
    kind = type(value)
    return kind in _PLAIN and (kind is not float or abs(value) > 0)  # type: ignore[arg-type]  # no zero, no NaN
