"""Greedy-Dual-Size-Frequency: keeps what saves the most compute per byte."""

from __future__ import annotations

import heapq
import itertools

from trivet.policies.policy import Token

_LEAST_COST = 1e-6  # seconds; so that values of unknown cost still compete by frequency and size
_MOST_COST = 1e9
_SLACK = 64  # obsolete heap items tolerated beyond one for each live entry


class _Entry:
    """What is known of one token. ``queued`` is the number of its valid heap item."""

    __slots__ = ("age", "frequency", "queued", "token", "worth")

    def __init__(self, token: Token) -> None:
        self.token = token
        self.frequency = 1
        self.age = 0.0
        self.worth = 0.0
        self.queued = -1


class GDSF:
    """Evicts the smallest ``age + frequency * cost / size``.

    ``age`` is the priority of the last victim at the time of an entry's last use, so that entries
    which were valuable once give way in the end. Among equals the one queued first goes. Costs are
    taken as 1 microsecond at least and 1e9 s at most.

    Sources: Cao and Irani, "Cost-Aware WWW Proxy Caching Algorithms" (1997), for ageing by the
    last victim; Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency
    Caching Policy" (1998), for the frequency.

    The heap is lazy. A use changes only the entry, never the heap: it can only raise the priority,
    so the item in the heap is a lower bound, and an item that comes up first with a bound that is
    too low is put back with its priority of now. The victims are those of the exact algorithm.
    """

    def __init__(self) -> None:
        self._entries: dict[Token, _Entry] = {}
        self._heap: list[tuple[float, int, _Entry]] = []
        self._number = itertools.count().__next__
        self._age = 0.0

    def inserted(self, token: Token, size: int, cost: float, group: str = "") -> None:
        """Track a token; O(log n)."""
        entry = self._entries.get(token)
        if entry is None:
            entry = self._entries[token] = _Entry(token)
        if not _LEAST_COST <= cost <= _MOST_COST:  # or is NaN: max() takes its first argument then
            cost = min(max(_LEAST_COST, cost), _MOST_COST)
        entry.worth = cost / max(size, 1)
        entry.age = self._age
        number = entry.queued = self._number()
        # The priority, spelled out here and in `victim`: calls are half of what these take.
        bound = entry.age + entry.frequency * entry.worth
        heapq.heappush(self._heap, (bound, number, entry))
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._compact()

    def touched(self, token: Token) -> None:
        """Count a use; O(1)."""
        # Two threads may lose a count here; the victims are then those of one use less.
        try:  # cheaper than get(), and a hit is what this is called for
            entry = self._entries[token]
        except KeyError:
            return
        entry.frequency += 1
        entry.age = self._age

    def removed(self, token: Token) -> None:
        """Forget a token; its heap item is dropped when it comes up."""
        entry = self._entries.pop(token, None)
        if entry is not None:
            entry.queued = -1

    def victim(self, full: bool = True) -> Token | None:
        """The token of least priority; O(log n) amortised over uses and insertions."""
        heap = self._heap
        while full and heap:
            bound, number, entry = heap[0]
            if number != entry.queued:
                heapq.heappop(heap)
            elif (priority := entry.age + entry.frequency * entry.worth) > bound:
                number = entry.queued = self._number()
                heapq.heapreplace(heap, (priority, number, entry))
            else:
                self._age = max(self._age, bound)
                return entry.token
        return None

    def ranked(self) -> list[Token]:
        """The highest priority first; O(n log n)."""
        entries = sorted(self._entries.values(), key=lambda each: (_priority(each), each.queued))
        return [each.token for each in reversed(entries)]

    def _compact(self) -> None:
        """Drop the items of removed and replaced entries, which would otherwise pile up."""
        self._heap = [item for item in self._heap if item[1] == item[2].queued]
        heapq.heapify(self._heap)


def _priority(entry: _Entry) -> float:
    return entry.age + entry.frequency * entry.worth
