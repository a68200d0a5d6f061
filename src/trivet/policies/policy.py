"""What an eviction policy is."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, TypeAlias

Token: TypeAlias = Hashable


class Policy(Protocol):
    """Decides what to evict. It keeps no values, counts no budget and knows no time.

    The owner of the budget reports what happens to each token (a digest, a block number) and asks
    for victims. Calls come one at a time, except `touched`, which may run beside any other call and
    need not be exact then, but must do no harm.

    A policy that would rather not admit a newcomer names it as the next victim.

    `trivet.testing.PolicyContract` is the test suite that a new policy must pass.
    """

    def inserted(self, token: Token, size: int, cost: float, group: str = "") -> None:
        """Track a token. One that is tracked already gets the new facts and keeps its history.

        Args:
            size: bytes that it occupies.
            cost: seconds that computing it again would take.
            group: quota group; most policies don't look at it.
        """

    def touched(self, token: Token) -> None:
        """The token was used. One that isn't tracked is ignored."""

    def removed(self, token: Token) -> None:
        """Forget a token, evicted or otherwise gone. One that isn't tracked is ignored."""

    def victim(self, full: bool = True) -> Token | None:
        """The token to evict next; it stays tracked until `removed`.

        With ``full`` (the owner's budget is exceeded), None only if nothing is tracked. Without,
        a token only if it has to go for a limit of the policy's own, such as a quota.
        """

    def ranked(self) -> list[Token]:
        """All that is tracked, the next victim last, as far as that is known without evicting."""


MakePolicy: TypeAlias = Callable[[], Policy]
