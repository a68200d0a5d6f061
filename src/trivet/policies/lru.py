"""Least recently used."""

from __future__ import annotations

from collections import OrderedDict

from trivet.policies.policy import Token


class LRU:
    """Evicts what was not used for the longest time, whatever its size and cost.

    The policy for prefixes of attention keys and values, where a long-unused block is of no use to
    anybody; elsewhere `GDSF` saves more.
    """

    def __init__(self) -> None:
        self._order: OrderedDict[Token, None] = OrderedDict()  # least recently used first

    def inserted(self, token: Token, size: int, cost: float, group: str = "") -> None:
        """Track a token as the most recently used one."""
        self._order[token] = None
        self._order.move_to_end(token)

    def touched(self, token: Token) -> None:
        """Make it the most recently used one."""
        # One call into C, so it can't meet a half-done change; absent is the other thread's doing.
        try:  # noqa: SIM105 - suppress() costs more than the rest
            self._order.move_to_end(token)
        except KeyError:
            pass

    def removed(self, token: Token) -> None:
        """Forget it."""
        self._order.pop(token, None)

    def victim(self, full: bool = True) -> Token | None:
        """The least recently used token."""
        while full and self._order:
            try:
                return next(iter(self._order))
            except RuntimeError:  # a concurrent `touched` moved the first one
                continue
        return None

    def ranked(self) -> list[Token]:
        """The most recently used first."""
        return list(self._order)[::-1]
