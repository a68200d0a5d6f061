"""The tables of the index, inside a transaction: entries, how they are used, groups, totals."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from blake3 import blake3
from xxhash import xxh3_64_digest

from trivet.stores.host.environment import Environment
from trivet.stores.host.records import Uses, is_inline, record_size, worth

_TOTALS = struct.Struct("<qqq")
_ALL = b"all"
_PAGE = 4096
_SAMPLE = 64
_DROP = _SAMPLE // 8  # of a sample, what one round may evict
_ROUNDS = 32  # samples, so that a write transaction stays short
_SLACK = 64  # making room ends at a limit less one part in so many


class Totals(NamedTuple):
    """Entries, their bytes, and the bytes that they occupy in the index itself."""

    entries: int
    size: int
    inline: int

    def changed(self, record: bytes, sign: int) -> Totals:
        inline = _room(record) if is_inline(record) else 0
        return Totals(
            self.entries + sign, self.size + sign * record_size(record), self.inline + sign * inline
        )


class Limits(NamedTuple):
    """Bytes in all, bytes in the index, and per group; None for no limit."""

    size: int
    inline: int
    group_entries: int | None = None
    group_size: int | None = None

    def lowered(self) -> Limits:
        """A little below, so that not every write has to make room."""
        return self._replace(
            size=self.size - self.size // _SLACK, inline=self.inline - self.inline // _SLACK
        )


class Victim(NamedTuple):
    """An entry that was removed, and the record that it had."""

    digest: bytes
    record: bytes


class Catalog:
    """The tables, seen from one transaction. Every method keeps all tables consistent."""

    def __init__(self, env: Environment, txn: Any) -> None:
        self._txn = txn
        self._entries, self._uses = env.entries, env.uses
        self._groups, self._totals = env.groups, env.totals

    def record(self, digest: bytes) -> bytes | None:
        """The entry's record."""
        return self._txn.get(digest, db=self._entries)  # type: ignore[no-any-return]

    def uses(self, digest: bytes) -> Uses | None:
        """How the entry is used; None when that is unknown."""
        raw = self._txn.get(digest, db=self._uses)
        return None if raw is None else Uses.decode(raw)

    def insert(self, digest: bytes, record: bytes, uses: Uses) -> bytes | None:
        """Add or replace an entry; returns the record that it replaced."""
        before = self.uses(digest)
        old = self.remove(digest)
        if before is not None:
            uses = uses._replace(frequency=uses.frequency + before.frequency)
        # Totals first, here and in `remove`: a recount must not meet the change that it precedes.
        self._count(_ALL, record, 1)
        if uses.group:
            group = _group_key(uses.group)
            self._count(group, record, 1)
            self._txn.put(group, digest, db=self._groups)
        self._txn.put(digest, record, db=self._entries)
        self._txn.put(digest, uses.encode(), db=self._uses)
        return old

    def insert_new(self, records: Mapping[bytes, tuple[bytes, Uses]]) -> None:
        """Add entries under digests that have none, and of no group: `insert` for many."""
        totals = self._read_totals(_ALL)
        for record, _ in records.values():
            totals = totals.changed(record, 1)
        self._write_totals(_ALL, totals)
        ordered = sorted(records.items())  # neighbours lie on one page
        for table, values in (
            (self._entries, [(digest, record) for digest, (record, _) in ordered]),
            (self._uses, [(digest, uses.encode()) for digest, (_, uses) in ordered]),
        ):
            with self._txn.cursor(table) as cursor:
                cursor.putmulti(values)

    def known(self, digests: Iterable[bytes]) -> set[bytes]:
        """Those of ``digests`` that have an entry."""
        with self._txn.cursor(self._entries) as cursor:
            return {each for each in digests if cursor.set_key(each)}

    def remove(self, digest: bytes) -> bytes | None:
        """Remove an entry; returns its record."""
        record = self.record(digest)
        if record is None:
            return None
        uses = self.uses(digest)
        self._count(_ALL, record, -1)
        if uses is not None and uses.group:
            group = _group_key(uses.group)
            self._count(group, record, -1)
            self._txn.delete(group, digest, db=self._groups)
        self._txn.delete(digest, db=self._entries)
        self._txn.delete(digest, db=self._uses)
        return record

    def totals(self, group: str = "") -> Totals:
        """The totals of a group, or of everything; counted anew when the record is damaged."""
        return self._read_totals(_group_key(group) if group else _ALL)

    def touch(self, touches: Iterable[tuple[bytes, tuple[int, float]]]) -> None:
        """Add uses: count and time of the last one, by digest."""
        get, put, table = self._txn.get, self._txn.put, self._uses
        for digest, (count, last) in touches:
            raw = get(digest, db=table)
            added = Uses.added(raw, count, last) if raw is not None else None
            if added is not None:
                put(digest, added, db=table)

    def make_room(
        self, limits: Limits, group: str, keep: bytes, now: float
    ) -> tuple[list[Victim], bool]:
        """Evict until the limits are kept, or the transaction gets long; True when they are.

        ``keep`` is the entry that was just written: the last to go.
        """
        victims = self._trim_group(limits, group, keep) if group else []
        goal = limits.lowered()
        for _ in range(_ROUNDS):
            if not self._is_over(limits):
                break
            sample = [each for each in self._sample(_SAMPLE) if each != keep]
            if not sample:
                break
            sample.sort(key=lambda each: self._worth(each, now))
            for digest in sample[:_DROP]:
                if not self._is_over(goal):
                    break
                # Or a few large entries would all go for one of them.
                if not self._is_over(limits) and self._is_large(digest, limits):
                    break
                self._evict(digest, victims)
        return victims, not self._is_over(limits)

    def records(self, after: bytes | None, count: int) -> list[tuple[bytes, bytes]]:
        """At most ``count`` digests, in order, that follow ``after``, and their records."""
        with self._txn.cursor(self._entries) as cursor:
            if not (cursor.first() if after is None else cursor.set_range(after)):
                return []
            found = []
            for digest, record in cursor.iternext():
                if digest != after:
                    found.append((bytes(digest), bytes(record)))
                if len(found) == count:
                    break
            return found

    def _evict(self, digest: bytes, victims: list[Victim]) -> None:
        record = self.remove(digest)
        if record is not None:
            victims.append(Victim(digest, record))

    def _is_over(self, limits: Limits) -> bool:
        totals = self.totals()
        return totals.entries > 0 and (totals.size > limits.size or totals.inline > limits.inline)

    def _is_large(self, digest: bytes, limits: Limits) -> bool:
        record = self.record(digest)
        return record is not None and record_size(record) > limits.size // _SLACK

    def _worth(self, digest: bytes, now: float) -> float:
        uses = self.uses(digest)
        return worth(uses, now) if uses is not None else 0.0

    def _sample(self, count: int) -> list[bytes]:
        """About ``count`` entries. Digests are uniform, so a random seek is a random entry."""
        with self._txn.cursor(self._entries) as cursor:
            if self.totals().entries <= count:
                return [bytes(key) for key in cursor.iternext(keys=True, values=False)]
            found = set()
            noise = os.urandom(32 * count)
            for at in range(0, len(noise), 32):
                if cursor.set_range(noise[at : at + 32]) or cursor.first():
                    found.add(bytes(cursor.key()))
            return list(found)

    def _trim_group(self, limits: Limits, group: str, keep: bytes) -> list[Victim]:
        """Least recently used within the group, until its quota is kept."""
        victims: list[Victim] = []
        if not self._group_is_over(limits, group):
            return victims
        for digest in sorted(self._members(_group_key(group)), key=self._last):
            if not self._group_is_over(limits, group):
                break
            if digest != keep:
                self._evict(digest, victims)
        return victims

    def _group_is_over(self, limits: Limits, group: str) -> bool:
        if limits.group_entries is None and limits.group_size is None:
            return False
        totals = self.totals(group)
        return (limits.group_entries is not None and totals.entries > limits.group_entries) or (
            limits.group_size is not None and totals.size > limits.group_size
        )

    def _last(self, digest: bytes) -> float:
        uses = self.uses(digest)
        return uses.last if uses is not None else 0.0

    def _members(self, key: bytes) -> Iterator[bytes]:
        with self._txn.cursor(self._groups) as cursor:
            if cursor.set_key(key):
                for value in cursor.iternext_dup():
                    yield bytes(value)

    def _count(self, key: bytes, record: bytes, sign: int) -> None:
        totals = self._read_totals(key).changed(record, sign)
        if key != _ALL and totals.entries <= 0:
            self._txn.delete(key, db=self._totals)
        else:
            self._write_totals(key, totals)

    def _write_totals(self, key: bytes, totals: Totals) -> None:
        raw = _TOTALS.pack(*totals)
        self._txn.put(key, raw + xxh3_64_digest(raw), db=self._totals)

    def _read_totals(self, key: bytes) -> Totals:
        raw = self._txn.get(key, db=self._totals)
        if raw is None and (key != _ALL or not self._txn.stat(self._entries)["entries"]):
            return Totals(0, 0, 0)
        if raw is not None and len(raw) == _TOTALS.size + 8:
            front = raw[: _TOTALS.size]
            if raw[_TOTALS.size :] == xxh3_64_digest(front):
                return Totals(*_TOTALS.unpack(front))
        return self._recount(key)

    def _recount(self, key: bytes) -> Totals:
        totals = Totals(0, 0, 0)
        if key == _ALL:
            with self._txn.cursor(self._entries) as cursor:
                for record in cursor.iternext(keys=False, values=True):
                    totals = totals.changed(bytes(record), 1)
            return totals
        for digest in self._members(key):
            record = self.record(digest)
            if record is not None:
                totals = totals.changed(record, 1)
        return totals


def _group_key(group: str) -> bytes:
    return blake3(group.encode()).digest()


def _room(record: bytes) -> int:
    """About what a value takes in the index: beyond half a page it gets pages of its own."""
    size = len(record) + 64
    return size + size // 2 if size < _PAGE // 2 else -(-size // _PAGE) * _PAGE
