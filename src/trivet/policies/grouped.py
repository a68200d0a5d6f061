"""Quotas: one group's flood evicts only its own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from trivet.policies.gdsf import GDSF
from trivet.policies.policy import MakePolicy, Policy, Token

_NONE = object()


class Quota(NamedTuple):
    """What a group may hold at most; None for no limit of that kind."""

    size: int | None = None  # bytes
    entries: int | None = None


class _Group:
    """One group: a policy, what it tracks, and how much that is."""

    def __init__(self, policy: Policy, quota: Quota) -> None:
        self.policy = policy
        self.quota = quota
        self.sizes: dict[Token, int] = {}
        self.size = 0

    def inserted(self, token: Token, size: int, cost: float, name: str) -> None:
        self.size += size - self.sizes.get(token, 0)
        self.sizes[token] = size
        self.policy.inserted(token, size, cost, name)

    def removed(self, token: Token) -> None:
        self.size -= self.sizes.pop(token)
        self.policy.removed(token)

    def load(self, total_size: int, total_entries: int) -> float:
        """How full it is: 1 is at the quota; where there is no limit, its part of the whole."""
        size, entries = self.quota
        return max(
            self.size / max(total_size if size is None else size, 1),
            len(self.sizes) / max(total_entries if entries is None else entries, 1),
        )

    def exceeded(self) -> bool:
        size, entries = self.quota
        return (size is not None and self.size > size) or (
            entries is not None and len(self.sizes) > entries
        )


class Grouped:
    """A policy of its own for each group, inside quotas.

    A group over its quota gives up its own entries even while the owner has room. When the owner
    has none, the victim comes from the group that is fullest, measured by its quota, so a group
    that keeps to its share is the last to lose anything.

    Args:
        quotas: by group name.
        default: the quota of each group that ``quotas`` doesn't name.
        make: makes the policy of one group.
    """

    def __init__(
        self,
        quotas: Mapping[str, Quota] | None = None,
        *,
        default: Quota = Quota(),  # noqa: B008 - immutable
        make: MakePolicy = GDSF,
    ) -> None:
        self._quotas = dict(quotas or {})
        self._default = default
        self._make = make
        self._groups: dict[str, _Group] = {}
        self._where: dict[Token, str] = {}
        self._over: dict[str, None] = {}  # groups that exceed their quota, in order

    def inserted(self, token: Token, size: int, cost: float, group: str = "") -> None:
        """Track a token in its group; it may come from another one."""
        if self._where.get(token, group) != group:
            self.removed(token)
        self._where[token] = group
        if group not in self._groups:
            self._groups[group] = _Group(self._make(), self._quotas.get(group, self._default))
        self._groups[group].inserted(token, size, cost, group)
        self._note(group)

    def touched(self, token: Token) -> None:
        """Pass it on to the group's policy."""
        group = self._groups.get(self._where.get(token, ""))
        if group is not None:
            group.policy.touched(token)

    def removed(self, token: Token) -> None:
        """Forget a token, and its group with its last one."""
        name = self._where.pop(token, None)
        if name is None:
            return
        group = self._groups[name]
        group.removed(token)
        if not group.sizes:
            del self._groups[name]
        self._note(name)

    def victim(self, full: bool = True) -> Token | None:
        """From a group over its quota; else, with ``full``, from the fullest group."""
        for name in self._over:
            return self._groups[name].policy.victim()
        if not full or not self._groups:
            return None
        size = sum(group.size for group in self._groups.values())
        entries = len(self._where)
        fullest = max(self._groups.values(), key=lambda group: group.load(size, entries))
        return fullest.policy.victim()

    def ranked(self) -> list[Token]:
        """The best of each group, then the second best, and so on."""
        ranks = [group.policy.ranked() for group in self._groups.values()]
        rounds = itertools.zip_longest(*ranks, fillvalue=_NONE)
        return [token for each in rounds for token in each if token is not _NONE]

    def _note(self, name: str) -> None:
        group = self._groups.get(name)
        if group is not None and group.exceeded():
            self._over[name] = None
        else:
            self._over.pop(name, None)
