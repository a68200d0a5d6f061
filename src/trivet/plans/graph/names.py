"""Names of values, replaced by numbers, so that renaming them does not change a graph.

A name gets the next number where it is first mentioned. Equal streams of numbers then mean graphs
that are equal but for a renaming, whatever order their nodes are in; no value is identified by what
it was computed from, so two random draws never become one.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable

from trivet.plans.graph.tokens import Tokens

Numbers = dict[bytes, int]

_MOST = 1 << 62


class Names:
    """Numbers of value names, lexically scoped.

    Every name can be ``logged`` in the order of first mention. `log` is the digest of that; it
    becomes part of the structure when a model has fields that might refer to values by name in a
    way this version does not know.

    Attributes:
        logged: whether names are logged.
        numbers: of the names that are in scope. A name that is asked for by index and not there
            gets the next one; 0 stands for the empty name, an optional value left out.
    """

    def __init__(self, *, logged: bool = False) -> None:
        self.logged = logged
        self._left = iter(range(1, _MOST))  # unlike `itertools.count`, says how far it is
        self._next = self._left.__next__
        self._log = Tokens("trivet 2026 graph names v1") if logged else None
        self.numbers = self._table()

    def _table(self) -> Numbers:
        table = defaultdict(self._next) if self._log is None else _Logged(self._next, self._log)
        table[b""] = 0
        return table

    def note(self, name: bytes) -> None:
        """Log a name that is no value's."""
        if self._log is not None:
            self._log.data(0, name)

    def mark(self) -> int:
        """The number given last. What is not in scope yet gets a greater one."""
        return _MOST - 1 - operator.length_hint(self._left)

    def leave(self, mark: int, defined: list[bytes]) -> None:
        """Forget the names that a scope defined, but not those that were known outside before."""
        numbers = self.numbers
        for name in defined:
            if numbers.get(name, 0) > mark:
                del numbers[name]

    def swap(self, numbers: Numbers | None = None) -> Numbers:
        """Go on with another table, or an empty one for a body that captures nothing; returns the
        old."""
        old, self.numbers = self.numbers, self._table() if numbers is None else numbers
        return old

    def log(self) -> bytes:
        """Digest of all names in the order of first mention; empty unless they are logged."""
        return b"" if self._log is None else self._log.finish()


class _Logged(defaultdict[bytes, int]):
    """A table that logs every name that gets a number."""

    def __init__(self, following: Callable[[], int], log: Tokens) -> None:
        super().__init__(following)
        self._log = log

    def __missing__(self, name: bytes) -> int:
        number = super().__missing__(name)
        self._log.data(number & 0xFFFFFFFF, name)
        return number
