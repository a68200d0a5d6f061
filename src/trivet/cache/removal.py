"""What makes entries unusable, in every tier that may have them: `Cache` says when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trivet.events import EventKind, MissReason, Tier
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.cache.artifact import Artifact
    from trivet.cache.tiers import Tiers


def invalidate(tiers: Tiers, tags: tuple[str, ...]) -> Mapping[str, int]:
    """`Cache.invalidate`."""
    if tiers.shared is None:
        return _invalidate_here(tiers, tags)
    # First, so that nobody on this host takes a copy of the old state for one of the new.
    error = tiers.shared.raise_epochs(tags)
    epochs = _invalidate_here(tiers, tags)
    if error is not None:
        raise error
    tiers.shared.agree(epochs)
    for tag in tags:
        tiers.emit(EventKind.INVALIDATED, Tier.SHARED, detail=tag)
    return epochs


def _invalidate_here(tiers: Tiers, tags: tuple[str, ...]) -> Mapping[str, int]:
    if tiers.store is None:
        if tiers.layers is not None:
            tiers.layers.hide_here(tags)
        tiers.own.raise_all(tags)
        tiers.memory.clear()
        return dict.fromkeys(tags, 0)
    epochs = tiers.store.raise_epochs(tags)
    for tag in tags:
        tiers.emit(EventKind.INVALIDATED, Tier.HOST, detail=tag)
    return epochs


def forget(tiers: Tiers, key: Key) -> bool:
    """`Cache.forget`."""
    here = tiers.store is not None and tiers.store.delete(key.digest)
    if tiers.layers is not None and tiers.layers.has(tiers, key.digest):
        from trivet.cache.layer_tags import entry_tag

        tiers.layers.hide(tiers, [entry_tag(key.digest)])
        here = True
    tiers.memory.remove(key.digest)
    return (tiers.shared is not None and tiers.shared.writer.forget(key)) or here


def quarantine(tiers: Tiers, key: Key, detail: str) -> None:
    """`Cache.quarantine`."""
    tiers.refuse_content(key)
    here = tiers.store is not None and tiers.store.read(key.digest) is not None
    if tiers.layers is not None and not here and tiers.layers.has(tiers, key.digest):
        tiers.layers.damaged(tiers, key, MissReason.CORRUPT, detail)
        return
    tiers.quarantine(key, MissReason.CORRUPT, detail)


def quarantine_files(tiers: Tiers, artifact: Artifact, detail: str) -> bool:
    """`Cache.quarantine_files`."""
    if tiers.layers is not None and artifact.is_stored(tiers.layers):
        tiers.layers.damaged(tiers, artifact.key, MissReason.CORRUPT, detail)
        return True
    if tiers.store is not None and not artifact.is_stored(tiers.store):
        return False
    # Files that this host's disk damaged are still good in the shared tier.
    if tiers.shared is not None and not artifact.is_damaged():
        tiers.refuse_content(artifact.key)
    tiers.quarantine(artifact.key, MissReason.CORRUPT, detail)
    return True
