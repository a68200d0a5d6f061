"""The memory tier in a get-or-set loop: its price per operation beside cachebox's LRU, its hits
beside SIEVE's, and the compute that it saves beside exact Greedy-Dual-Size-Frequency.

Requests follow Zipf's law with exponent 0.9 over a million keys; a tenth of them fits. Prices and
hits are those of a loop with equal costs and sizes, in CPU time. Compute saved is of the same
requests with costs by key, drawn from a lognormal distribution (sigma 2).

SIEVE: Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is Simpler than LRU" (NSDI 2024).
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Sequence

import numpy as np
from cachebox import LRUCache
from harness import alternate, arguments, report, summary

from trivet.entries import Descriptor
from trivet.keys import Key
from trivet.memory import MemoryEntry, MemoryTier
from trivet.policies import GDSF, LRU, S3FIFO, MakePolicy

_KEYS = 1_000_000
_ROOM = 100_000
_REQUESTS = 1_000_000
_ENTRY = MemoryEntry(Key("bench/1", {}), b"value", Descriptor(codec="bytes/1", created=0.0))

Requests = Sequence[bytes]
Costs = dict[bytes, float]


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    requests, costs = _stream()
    hits: dict[str, float] = {}

    def side(name: str, loop: Callable[[Requests], int]) -> Callable[[], float]:
        def measure() -> float:
            started = time.process_time()
            found = loop(requests)
            spent = time.process_time() - started
            hits[name] = found / len(requests)
            return spent / len(requests) * 1e9

        return measure

    sides: dict[str, Callable[[Requests], int]] = {
        "cachebox LRU": _cachebox,
        "trivet, GDSF (default)": lambda stream: _tier(stream, GDSF),
        "trivet, LRU": lambda stream: _tier(stream, LRU),
        "trivet, S3-FIFO": lambda stream: _tier(stream, S3FIFO),
    }
    measured = alternate({name: side(name, loop) for name, loop in sides.items()}, options.rounds)
    peer = summary(measured["cachebox LRU"])["median"]
    rows: list[dict[str, object]] = []
    for name, values in measured.items():
        figures = summary(values)
        rows.append(
            {
                "get or set": name,
                "ns": figures["median"],
                "low": figures["low"],
                "high": figures["high"],
                "x cachebox LRU": figures["median"] / peer,
                "hits %": 100 * hits[name],
                "compute saved %": 100 * _saved(requests, costs, _held_by(name)),
            }
        )
    rows.append({"get or set": "SIEVE, for its hits", "hits %": 100 * _sieve(requests)})
    exact = 100 * _saved(requests, costs, _ExactGDSF)
    rows.append({"get or set": "exact GDSF, for what it saves", "compute saved %": exact})
    report("memory_policies", rows, options.json)


def _stream() -> tuple[list[bytes], Costs]:
    rng = np.random.default_rng(9)
    weights = np.arange(1, _KEYS + 1, dtype=np.float64) ** -0.9
    ranks = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(_REQUESTS))
    prices = rng.lognormal(0.0, 2.0, _KEYS + 1) * 1e-3
    names = {int(rank): rng.bytes(32) for rank in np.unique(ranks)}
    costs = {name: float(prices[rank]) for rank, name in names.items()}
    return [names[int(rank)] for rank in ranks], costs


def _cachebox(requests: Requests) -> int:
    cache: LRUCache[bytes, object] = LRUCache(_ROOM)
    get, hits = cache.get, 0
    for name in requests:
        if get(name) is None:
            cache[name] = _ENTRY
        else:
            hits += 1
    return hits


def _tier(requests: Requests, policy: MakePolicy) -> int:
    tier = MemoryTier(_ROOM, policy)
    get, put, hits = tier.get, tier.put, 0
    for name in requests:
        if get(name) is None:
            put(name, _ENTRY, 1, 1.0)
        else:
            hits += 1
    return hits


def _held_by(name: str) -> Callable[[], object]:
    return {
        "cachebox LRU": lambda: _Held(LRU),
        "trivet, LRU": lambda: _Held(LRU),
        "trivet, S3-FIFO": lambda: _Held(S3FIFO),
    }.get(name, lambda: _Held(GDSF))


class _Held:
    """A memory tier with costs."""

    def __init__(self, policy: MakePolicy) -> None:
        self._tier = MemoryTier(_ROOM, policy)

    def look(self, name: bytes, cost: float) -> bool:
        if self._tier.get(name) is not None:
            return True
        self._tier.put(name, _ENTRY, 1, cost)
        return False


class _ExactGDSF:
    """With the heap up to date at every use."""

    def __init__(self) -> None:
        self._age, self._numbers = 0.0, itertools.count()
        self._heap: list[tuple[float, int, bytes]] = []
        self._held: dict[bytes, tuple[int, int]] = {}  # uses, and the number of the valid item

    def look(self, name: bytes, cost: float) -> bool:
        uses, _ = self._held.get(name, (0, 0))
        number = next(self._numbers)
        self._held[name] = uses + 1, number
        heapq.heappush(self._heap, (self._age + (uses + 1) * cost, number, name))
        while len(self._held) > _ROOM:
            priority, number, victim = heapq.heappop(self._heap)
            if self._held.get(victim, (0, -1))[1] == number:
                self._age = priority
                del self._held[victim]
        return uses > 0


def _saved(requests: Requests, costs: Costs, make: Callable[[], object]) -> float:
    """The part of all compute that hits spare."""
    look = make().look  # type: ignore[attr-defined]
    saved = sum(costs[name] for name in requests if look(name, costs[name]))
    return saved / sum(costs[name] for name in requests)


def _sieve(requests: Requests) -> float:
    """The part of requests that SIEVE answers: a queue, a visited bit, a hand."""
    visited: dict[bytes, bool] = {}
    after: dict[bytes | None, bytes | None] = {}  # towards the newest
    before: dict[bytes | None, bytes | None] = {}
    newest: bytes | None = None
    oldest: bytes | None = None
    hand: bytes | None = None
    hits = 0
    for name in requests:
        if name in visited:
            visited[name] = True
            hits += 1
            continue
        if len(visited) >= _ROOM:
            victim = hand if hand is not None else oldest
            while victim is not None and visited[victim]:
                visited[victim] = False
                victim = after[victim] if after[victim] is not None else oldest
            assert victim is not None
            younger, older = after.pop(victim), before.pop(victim)
            hand = younger
            if younger is not None:
                before[younger] = older
            else:
                newest = older
            if older is not None:
                after[older] = younger
            else:
                oldest = younger
            del visited[victim]
        visited[name] = False
        before[name], after[name] = newest, None
        if newest is not None:
            after[newest] = name
        newest = name
        if oldest is None:
            oldest = name
    return hits / len(requests)


if __name__ == "__main__":
    main()
