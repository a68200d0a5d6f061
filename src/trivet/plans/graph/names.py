"""Names of values, replaced by numbers, so that renaming them does not change a graph.

A name gets the next number where it is first mentioned. Equal streams of numbers then mean graphs
that are equal but for a renaming, whatever order their nodes are in; no value is identified by what
it was computed from, so two random draws never become one.
"""

from __future__ import annotations

from trivet.plans.graph.tokens import Tokens


class Names:
    """Numbers of value names, lexically scoped.

    Every name is also logged in the order of first mention. `log` is the digest of that; it becomes
    part of the structure when a model has fields that might refer to values by name in a way this
    version does not know.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._count = 0
        self._log = Tokens("trivet 2026 graph names v1")

    def number(self, name: bytes) -> int:
        """The number of a value; 0 stands for the empty name, an optional value left out."""
        if not name:
            return 0
        known = self._numbers.get(name)
        if known is None:
            self._count += 1
            known = self._numbers[name] = self._count
            self._log.data(known & 0xFFFFFFFF, name)
        return known

    def known(self, name: bytes) -> int:
        """The number of a value that was mentioned before, or 0."""
        return self._numbers.get(name, 0)

    def note(self, name: bytes) -> None:
        """Log a name that is no value's."""
        self._log.data(0, name)

    def mark(self) -> int:
        """Where the numbers stand when a scope is entered."""
        return self._count

    def leave(self, mark: int, defined: list[bytes]) -> None:
        """Forget the names that a scope defined, but not those that were known outside before."""
        numbers = self._numbers
        for name in defined:
            if numbers.get(name, 0) > mark:
                del numbers[name]

    def swap(self, numbers: dict[bytes, int]) -> dict[bytes, int]:
        """Go on with another table of names, for a body that captures nothing; returns the old."""
        old, self._numbers = self._numbers, numbers
        return old

    def log(self) -> bytes:
        """Digest of all names in the order of first mention."""
        return self._log.finish()
