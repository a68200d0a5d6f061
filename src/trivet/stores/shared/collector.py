"""Removing from an object store what nothing names any more.

A file is named by the manifest of an entry, a chunk by the recipe of such a file. Entries go when
they are expired, invalidated or damaged.

Who sends a file looks first whether it is there, and names it later. So nothing is removed when it
is found unused: it is marked, in a place where writers look, and what is marked they send again. A
later collection removes what is still unused, was not sent since, and was marked long enough ago
that whoever had not seen the mark must have named it by now.

Ages are told by the store's own clock. Who is killed in between has marked, or has removed less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from trivet.entries import Descriptor, Manifest, unseal
from trivet.entries.manifest import ARTIFACT_CODEC
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreUnavailable
from trivet.stores.shared.chunks import decode_recipe, few_at_once
from trivet.stores.shared.marks import read_marks, write_marks
from trivet.stores.shared.objects import ObjectStore
from trivet.stores.shared.requests import Listed

AGE = 86400.0
_KINDS = ("entries", "blobs", "recipes", "chunks")
_CLOCK = "collection/clock"
_CLOCK_SLACK = 300.0  # seconds that the clock of an entry's writer may differ from the store's
_MOST_MARKS = 50_000  # in one object, which writers read
_FILES = "files/"  # how the codecs of artifacts begin, those of later releases included

Progress = Callable[[int, int], object]
"""Called with the number of objects read and to be read."""


class Tally(msgspec.Struct):
    """Objects, and their bytes."""

    number: int = 0
    size: int = 0


class Collected(msgspec.Struct, frozen=True):
    """What a collection did, by kind: entries, blobs, recipes, chunks.

    Attributes:
        kept: in use, or too young to tell. marked: unused, for a later collection to remove.
        removed: there no more.
    """

    kept: dict[str, Tally]
    marked: dict[str, Tally]
    removed: dict[str, Tally]


def collect(
    store: ObjectStore,
    *,
    age: float = AGE,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Collected:
    """Mark what is unused in ``store``, and remove what is still unused since it was marked.

    Args:
        age: seconds. Nothing younger goes, nor what was marked later than that. It must be longer
            than any upload takes.
        dry_run: only say what would be done. Ages are then told by this host's clock.

    Raises `StoreError`; nothing in use was removed then. `StoreReadOnly` where nothing may be
    written, `StoreUnavailable` where a later release has written what can't be read here.
    """
    now = time.time() if dry_run else _time_of(store)
    with ThreadPoolExecutor(4, "trivet-collect") as pool:
        return _Collection(store, pool, now, age, progress or (lambda done, total: None)).run(
            dry_run=dry_run
        )


class _Collection:
    def __init__(
        self,
        store: ObjectStore,
        pool: ThreadPoolExecutor,
        now: float,
        age: float,
        progress: Progress,
    ) -> None:
        self._store = store
        self._requests = store.requests
        self._pool = pool
        self._now = now
        self._old = now - age  # what is from then or before is old enough
        self._progress = progress
        self._epochs: dict[str, int] = {}

    def run(self, *, dry_run: bool) -> Collected:
        marked_before = read_marks(self._requests) or {}
        # Listed before entries are read: what is sent after this is not touched.
        found = {kind: list(self._requests.list(f"{kind}/")) for kind in _KINDS}
        doomed, used = self._look(found)
        marks: dict[str, float] = {}
        for each in (each for kind in _KINDS[1:] for each in found[kind]):
            if each.name in used or not self._is_old(each) or len(marks) >= _MOST_MARKS:
                continue
            since = marked_before.get(each.name)
            if since is None or since < each.modified:  # sent again
                marks[each.name] = self._now
                continue
            marks[each.name] = since
            if since <= self._old:
                doomed[each.name] = each
        if not dry_run:
            # First, with what is removed now: who sends such a thing meanwhile must see it.
            write_marks(self._requests, marks)
            doomed = self._remove(doomed)
        return _result(found, marks, doomed)

    def _look(self, found: dict[str, list[Listed]]) -> tuple[dict[str, Listed], set[str]]:
        """Entries that nobody can use, and the names of the other objects that are in use."""
        total = len(found["entries"]) + len(found["recipes"])
        doomed: dict[str, Listed] = {}
        used: set[str] = set()
        jobs = (partial(self._named_by_entry, each) for each in found["entries"])
        done = 0
        for done, named in enumerate(few_at_once(self._pool, jobs), 1):
            entry = found["entries"][done - 1]
            if named is None:
                doomed[entry.name] = entry
            used.update(named or ())
            self._progress(done, total)
        # One that nothing names yet may be of an upload under way.
        alive = [each for each in found["recipes"] if each.name in used or not self._is_old(each)]
        jobs = (partial(self._named_by_recipe, each) for each in alive)
        for at, named in enumerate(few_at_once(self._pool, jobs), done + 1):
            used.update(named or ())
            self._progress(at, total)
        return doomed, used

    def _named_by_entry(self, entry: Listed) -> set[str] | None:
        """Names of the blobs and recipes of an entry; None where nobody can use it any more."""
        raw = self._requests.get(entry.name)
        if raw is None:
            return set()
        try:
            sealed = unseal(raw, cryptographic=True)
            facts = sealed.descriptor
            if facts.codec.startswith(_FILES) and facts.codec != ARTIFACT_CODEC:
                raise IncompatibleEntry(f"the entry has the codec {facts.codec}")
            files = Manifest.decode(sealed.payload).files if facts.codec == ARTIFACT_CODEC else ()
        except CorruptEntry:
            return None if self._is_old(entry) else set()
        except IncompatibleEntry as error:
            raise StoreUnavailable(
                f"what is in use can't be told: {error.message}",
                hint="a later release writes there too; use that one to collect",
            ) from error
        if self._is_old(entry) and not self._is_alive(facts):
            return None
        return {f"{kind}/{file.blake3.hex()}" for file in files for kind in ("blobs", "recipes")}

    def _named_by_recipe(self, recipe: Listed) -> set[str] | None:
        raw = self._requests.get(recipe.name)
        try:
            return {f"chunks/{digest.hex()}" for digest, _ in decode_recipe(raw or b"")}
        except CorruptEntry:
            return None

    def _is_alive(self, facts: Descriptor) -> bool:
        if facts.expires is not None and not facts.expires + _CLOCK_SLACK > self._now:
            return False
        return all(self._is_current(tag, epoch) for tag, epoch in facts.tags.items())

    def _is_current(self, tag: str, epoch: int) -> bool:
        if self._epochs.get(tag) != epoch:  # also where it was asked before somebody raised it
            self._epochs[tag] = self._store.epochs([tag])[tag]
        return self._epochs[tag] == epoch

    def _is_old(self, each: Listed) -> bool:
        return each.modified <= self._old

    def _remove(self, doomed: dict[str, Listed]) -> dict[str, Listed]:
        """Remove what was not written again since it was listed; returns what was removed."""

        def remove(each: Listed) -> Listed | None:
            there = self._requests.look(each.name)
            if there is None or there.modified > each.modified:
                return None
            return each if self._requests.remove(each.name) else None

        gone = few_at_once(self._pool, (partial(remove, each) for each in doomed.values()))
        return {each.name: each for each in gone if each is not None}


def _time_of(store: ObjectStore) -> float:
    """Now, by the clock of the store: it stands beside the objects that it will be compared with,
    and is told by the same request."""
    store.requests.put(_CLOCK, b"")
    return max(each.modified for each in store.requests.list("collection/"))


def _result(
    found: dict[str, list[Listed]], marks: Iterable[str], removed: Iterable[str]
) -> Collected:
    marked, gone = {*marks}, {*removed}
    result = Collected(*({kind: Tally() for kind in _KINDS} for _ in range(3)))
    for kind, objects in found.items():
        for each in objects:
            which = result.kept
            if each.name in gone:
                which = result.removed
            elif each.name in marked:
                which = result.marked
            which[kind].number += 1
            which[kind].size += each.size
    return result
