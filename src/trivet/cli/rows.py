"""Stored entries as rows of a table: what `ls`, `show`, `stats` and `drop` know about each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from trivet.cli.words import bucket_in_words
from trivet.errors import TrivetError
from trivet.plans.errors import FAILED_BEFORE, recorded_reason

if TYPE_CHECKING:
    from trivet.cache import Cache, StoredEntry
    from trivet.plans.activity import PlanUse

_SHORTEST = 12


class AmbiguousDigest(TrivetError):
    """Several entries have digests that begin so."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One stored entry.

    ``model`` is the name of the file that was last seen to make it, if the activity log still knows
    it. ``state`` is ``"ok"``, ``"failed"``, or why the entry would not be used. ``layer`` is the
    folder of the layer that it is in, empty for the cache folder. Sizes are in bytes, times in
    seconds (since the epoch).
    """

    digest: str
    space: str
    model: str
    graph: str
    backend: str
    version: str
    shapes: str
    size: int
    cost: float
    created: float
    expires: float | None
    uses: int
    last_use: float
    tags: tuple[str, ...]
    state: str
    error: str
    layer: str


def read_rows(cache: Cache, space: str | None) -> list[Row]:
    """All entries whose space begins with ``space``, the newest first."""
    names = model_names(read_activity(cache))
    uses = _uses(cache)
    rows = [
        row_of(each, names, uses)
        for each in cache.entries()
        if space is None or each.key.space.partition("/")[0] == space.partition("/")[0]
    ]
    return sorted(rows, key=lambda row: -row.created)


def read_activity(cache: Cache) -> list[PlanUse]:
    """The log of the cache's folder, the oldest first."""
    from trivet.plans.activity import Activity

    return list(Activity(cache.store.root)) if cache.store is not None else []


def model_names(activity: list[PlanUse]) -> dict[str, str]:
    """Key and graph, as they stand in the log, to the file name last seen with them."""
    names = {each.graph: each.model for each in activity}
    names.update((each.key, each.model) for each in activity if each.key)
    return names


def _uses(cache: Cache) -> dict[bytes, tuple[int, float]]:
    from trivet.stores.host import HostStore

    if not isinstance(cache.store, HostStore):
        return {}
    return {each.digest: (each.uses, each.last_use) for each in cache.store.items()}


def row_of(entry: StoredEntry, names: dict[str, str], uses: dict[bytes, tuple[int, float]]) -> Row:
    """The row of one entry. ``names`` is as from `model_names`; ``uses`` number and last, by
    digest."""
    key, facts = entry.key, entry.descriptor
    digest = key.digest.hex()
    graph, backend = _mapping(key.get("graph")), _mapping(key.get("backend"))
    structure = _hex(graph.get("structure"))
    count, last = uses.get(key.digest, (0, 0.0))
    return Row(
        digest=digest,
        space=key.space,
        model=names.get(digest) or names.get(structure[:16], ""),
        graph=structure,
        backend=str(backend.get("name", "")),
        version=str(backend.get("version", "")),
        shapes=bucket_in_words(key.get("shapes")),
        size=facts.size,
        cost=facts.cost,
        created=facts.created,
        expires=facts.expires,
        uses=count,
        last_use=last,
        tags=tuple(facts.tags),
        state=state_of(entry),
        error=error_of(entry),
        layer=str(entry.layer or ""),
    )


def state_of(entry: StoredEntry) -> str:
    """``"ok"``, ``"failed"``, or why the entry would not be used."""
    failure = entry.descriptor.failure
    if failure is None:
        return entry.invalid or "ok"
    reason = recorded_reason(failure.error_class)
    return "failed" if reason == FAILED_BEFORE else reason


def error_of(entry: StoredEntry) -> str:
    """The error that is recorded; empty when the entry is a value."""
    failure = entry.descriptor.failure
    return f"{failure.error_class}: {failure.text}" if failure is not None else ""


def find_entry(cache: Cache, prefix: str) -> StoredEntry | None:
    """The one entry whose digest begins with ``prefix``.

    Raises `AmbiguousDigest` when there are several.
    """
    wanted = prefix.lower()
    found = [each for each in cache.entries() if each.key.digest.hex().startswith(wanted)]
    if len(found) > 1:
        rows = sorted(each.key.digest.hex()[: max(_SHORTEST, len(prefix) + 4)] for each in found)
        raise AmbiguousDigest(
            f"{len(found)} entries have digests that begin with {prefix}",
            hint="one of " + ", ".join(rows[:10]) + (", …" if len(rows) > 10 else ""),
        )
    return found[0] if found else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _hex(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else ""
