"""S3-FIFO: quick demotion of what is used once, for values of equal cost."""

from __future__ import annotations

from collections import OrderedDict

from trivet.policies.policy import Token

_MOST_FREQUENCY = 3
_PROMOTED_ABOVE = 1
_SMALL_SHARE = 10  # the small queue's part of all bytes is one in this many


class _Entry:
    __slots__ = ("frequency", "queue", "size")

    def __init__(self, size: int, queue: _Queue) -> None:
        self.size = size
        self.queue = queue
        self.frequency = 0


class _Queue:
    """First in, first out, with its bytes counted."""

    __slots__ = ("entries", "size")

    def __init__(self) -> None:
        self.entries: OrderedDict[Token, _Entry] = OrderedDict()
        self.size = 0

    def put(self, token: Token, entry: _Entry) -> None:
        entry.queue = self
        self.entries[token] = entry
        self.size += entry.size

    def take(self, token: Token) -> _Entry:
        entry = self.entries.pop(token)
        self.size -= entry.size
        return entry


class S3FIFO:
    """Two queues and a memory of evicted tokens; looks at sizes and uses, not at costs.

    Newcomers enter a small queue (a tenth of the bytes); those used twice or more there move on to
    the main queue, others leave and are remembered; a remembered one that comes back enters the
    main queue at once. The main queue gives each entry another round for each use, up to three.

    Source: Yang, Zhang, Qiu, Yue and Rashmi, "FIFO Queues are All You Need for Cache Eviction"
    (SOSP 2023). The queues' shares are of the bytes tracked, which under pressure are the budget;
    as many evicted tokens are remembered as entries are tracked.
    """

    def __init__(self) -> None:
        self._entries: dict[Token, _Entry] = {}
        self._small = _Queue()
        self._main = _Queue()
        self._ghosts: OrderedDict[Token, None] = OrderedDict()
        self._named: Token | None = None  # the last victim

    def inserted(self, token: Token, size: int, cost: float, group: str = "") -> None:
        """Track a token; O(1)."""
        entry = self._entries.get(token)
        if entry is not None:
            entry.queue.size += size - entry.size
            entry.size = size
            return
        queue = self._small
        if token in self._ghosts:
            del self._ghosts[token]
            queue = self._main
        entry = self._entries[token] = _Entry(size, queue)
        queue.put(token, entry)

    def touched(self, token: Token) -> None:
        """Count a use, up to three; O(1)."""
        entry = self._entries.get(token)
        if entry is not None and entry.frequency < _MOST_FREQUENCY:
            entry.frequency += 1

    def removed(self, token: Token) -> None:
        """Forget a token; if it was the victim, and from the small queue, remember that."""
        entry = self._entries.pop(token, None)
        if entry is None:
            return
        entry.queue.take(token)
        if token == self._named and entry.queue is self._small:
            self._ghosts[token] = None
        self._named = None
        while len(self._ghosts) > len(self._entries):
            self._ghosts.popitem(last=False)

    def victim(self, full: bool = True) -> Token | None:
        """The next token to evict; O(1) amortised, since each use buys at most one round."""
        small, main = self._small, self._main
        while full and self._entries:
            if small.size * _SMALL_SHARE >= small.size + main.size or not main.entries:
                queue = small
            else:
                queue = main
            token, entry = next(iter(queue.entries.items()))
            if queue is small and entry.frequency > _PROMOTED_ABOVE:
                main.put(token, small.take(token))
                entry.frequency = 0
            elif queue is main and entry.frequency > 0:
                entry.frequency -= 1
                main.entries.move_to_end(token)
            else:
                self._named = token
                return token
        return None

    def ranked(self) -> list[Token]:
        """The main queue before the small one; in each what was used more, then what is younger."""
        found: list[Token] = []
        for queue in (self._main, self._small):
            newest = list(queue.entries.items())[::-1]
            found += [token for token, _ in sorted(newest, key=lambda item: -item[1].frequency)]
        return found
