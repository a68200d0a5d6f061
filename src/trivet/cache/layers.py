"""Layers below the host's tier: read in place, never written, hidden by what happens here.

The entries of a layer come without epochs. What a host knew of the tags when it first saw a bundle
is noted in its own folder; an entry is valid while that is still so. Each entry has two more tags:
``entry=<digest>``, raised to remove it from this host's view, and ``bundle=<id>``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from trivet.cache.layer_tags import bundle_tag, entry_tag, is_own, noted_in, tags_of
from trivet.cache.outcomes import Miss
from trivet.cache.sightings import Sightings
from trivet.cache.validity import judge
from trivet.entries import Descriptor, Sealed, peek, unseal
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreError
from trivet.events import EventKind, MissReason, Tier
from trivet.keys import Key
from trivet.stores.layers import Layer

if TYPE_CHECKING:
    from trivet.cache.tiers import Tiers


class LayerFound(NamedTuple):
    """An entry of a layer that may be used, and the folder of its files if it has any.

    The descriptor's tags have this host's epochs.
    """

    payload: memoryview
    descriptor: Descriptor
    files: Path


class LayerItem(NamedTuple):
    """An entry of a layer, met when looking around. ``invalid``: why it would not be used."""

    layer: Path
    digest: bytes
    head: bytes
    tags: dict[str, int]
    invalid: MissReason | None


class Layers:
    """The layers of one cache, the first one first."""

    def __init__(self, layers: Sequence[Layer], root: Path | None) -> None:
        """``root`` is the host's folder, for the notes; None to note in this process alone."""
        self.all = tuple(layers)
        self._sightings = Sightings(None if root is None else root / "layers")
        self._raised: dict[str, int] = {}  # where the host's epochs can't be
        self._lock = threading.Lock()

    def see(self, tiers: Tiers) -> None:
        """Note which bundles there are, before anything of them is used."""
        for layer in self.all:
            self._readable(tiers, layer)

    def look(self, tiers: Tiers, key: Key, codec_id: str) -> LayerFound | Miss:
        """What the layers have under ``key``, verified and judged."""
        missed = Miss(MissReason.ABSENT)
        for layer in self.all:
            found = self._look(tiers, layer, key, codec_id)
            if isinstance(found, LayerFound):
                return found
            if missed.reason is MissReason.ABSENT:
                missed = found
        return missed

    def artifact(self, digest: bytes) -> tuple[bytes | memoryview, Path] | None:
        """The sealed manifest and the folder of the files, from the first layer that has them."""
        for layer in self.all:
            try:
                found = layer.find(digest, layer.bundles())
            except (StoreError, OSError):
                continue
            if found is not None and found.files.is_dir():
                return found.sealed, found.files
        return None

    def damaged(self, tiers: Tiers, key: Key, reason: MissReason, detail: str) -> Miss:
        """Hide an entry that must not be met again. The layer itself is never changed."""
        self.hide(tiers, [entry_tag(key.digest)])
        tiers.emit(EventKind.QUARANTINED, Tier.LAYER, key=key, reason=reason, detail=detail)
        return Miss(reason, detail)

    def hide(self, tiers: Tiers, tags: Iterable[str]) -> None:
        """Invalidate ``tags``: for this host, or where it has no folder, for this process."""
        wanted = tuple(tags)
        if tiers.store is not None:
            try:
                tiers.store.raise_epochs(wanted)
            except (StoreError, OSError) as error:
                tiers.tier_failed(error, "hide", raises=False)
            else:
                return
        self.hide_here(wanted)

    def hide_all(self, tiers: Tiers) -> None:
        """Hide all that is installed now."""
        found = [name for layer in self.all for name, _ in self._readable(tiers, layer)]
        self.hide(tiers, [bundle_tag(name) for name in found])

    def hide_here(self, tags: Iterable[str]) -> None:
        """Invalidate ``tags`` in this process."""
        with self._lock:
            self._raised = {
                **self._raised,
                **{tag: self._raised.get(tag, 0) + 1 for tag in tags},
            }

    def has(self, tiers: Tiers, digest: bytes) -> bool:
        """Whether an entry of this digest can be seen, whether or not it is valid otherwise."""
        tag = entry_tag(digest)
        for layer in self.all:
            for bundle, seen in self._readable(tiers, layer):
                current = self._current(tiers, [tag, bundle_tag(bundle)])
                if seen is not None and all(seen.get(each) == at for each, at in current.items()):
                    try:
                        if layer.find(digest, (bundle,)) is not None:
                            return True
                    except OSError:
                        continue
        return False

    def items(self, tiers: Tiers) -> Iterator[LayerItem]:
        """All entries; of several with one digest, the one that would be used."""
        met: set[bytes] = set()
        for layer in self.all:
            for bundle, seen in self._readable(tiers, layer):
                heads: list[tuple[bytes, bytes]] = []
                with suppress(OSError):
                    heads += layer.heads(bundle)
                for digest, head in heads:
                    if digest in met:
                        continue
                    met.add(digest)
                    item = self._item(tiers, layer, bundle, seen, digest, head)
                    if item is not None:
                        yield item

    # -- inside --------------------------------------------------------------------------------

    def _look(self, tiers: Tiers, layer: Layer, key: Key, codec_id: str) -> LayerFound | Miss:
        try:
            bundles = self._bundles(tiers, layer)
            found = layer.find(key.digest, tuple(name for name, _ in bundles))
        except (StoreError, OSError) as error:
            tiers.tier_failed(error, "read", tier=Tier.LAYER)
            return Miss(MissReason.UNAVAILABLE, str(error))
        if found is None:
            return Miss(MissReason.ABSENT)
        seen = dict(bundles)[found.bundle]
        # Judged before it is verified: what was set aside is not found damaged again and again.
        if not self._is_visible(tiers, key.digest, found.bundle, seen):
            return Miss(MissReason.INVALIDATED, "hidden on this host")
        try:
            sealed = unseal(found.sealed)
        except CorruptEntry as error:
            return self.damaged(tiers, key, MissReason.CORRUPT, error.message)
        except IncompatibleEntry as error:
            return Miss(MissReason.INCOMPATIBLE, error.message)
        if sealed.key != key.canonical:
            return Miss(MissReason.KEY_MISMATCH, "another key has the same digest")
        return self._judge(tiers, sealed, codec_id, found.bundle, seen, found.files)

    def _judge(
        self,
        tiers: Tiers,
        sealed: Sealed,
        codec_id: str,
        bundle: str,
        seen: Mapping[str, int] | None,
        files: Path,
    ) -> LayerFound | Miss:
        facts = sealed.descriptor
        current = self._current(tiers, facts.tags)
        noted = noted_in(facts, seen)
        reason = judge(noted, codec_id, tiers.clock.time(), current)
        if reason is not None:
            return Miss(reason)
        shared = self._shared(tiers, bundle, facts)
        if shared is None:
            return Miss(MissReason.INVALIDATED, "by another host")
        return LayerFound(sealed.payload, msgspec.structs.replace(noted, shared=shared), files)

    def _item(
        self,
        tiers: Tiers,
        layer: Layer,
        bundle: str,
        seen: Mapping[str, int] | None,
        digest: bytes,
        head: bytes,
    ) -> LayerItem | None:
        try:
            _, facts = peek(head)
        except (CorruptEntry, IncompatibleEntry):
            return None  # `trivet bundle verify` reports these
        current = self._current(tiers, facts.tags)
        noted = noted_in(facts, seen)
        invalid = judge(noted, facts.codec, tiers.clock.time(), current)
        visible = self._is_visible(tiers, digest, bundle, seen)
        if not visible or (invalid is None and self._shared(tiers, bundle, facts) is None):
            invalid = MissReason.INVALIDATED
        return LayerItem(layer.root, digest, head, noted.tags, invalid)

    def _bundles(self, tiers: Tiers, layer: Layer) -> list[tuple[str, Mapping[str, int] | None]]:
        """The bundles with the epochs under which this host first saw them.

        None where the note of them can't be read: then all that has epochs is invalid.
        """
        return [
            (
                name,
                self._sightings.seen(
                    name,
                    lambda: self._first_seen(tiers, layer, name),  # noqa: B023
                ),
            )
            for name in layer.bundles()
        ]

    def _first_seen(self, tiers: Tiers, layer: Layer, bundle: str) -> dict[str, int] | None:
        try:
            return self._current(tiers, tags_of(layer, bundle))
        except FileNotFoundError:
            return None  # its folder is gone, or being replaced

    def _readable(self, tiers: Tiers, layer: Layer) -> list[tuple[str, Mapping[str, int] | None]]:
        """`_bundles`; none of a layer that can't be read at the moment."""
        try:
            return self._bundles(tiers, layer)
        except (StoreError, OSError) as error:
            tiers.tier_failed(error, "read", raises=False, tier=Tier.LAYER)
            return []

    def _is_visible(
        self, tiers: Tiers, digest: bytes, bundle: str, seen: Mapping[str, int] | None
    ) -> bool:
        current = self._current(tiers, [entry_tag(digest), bundle_tag(bundle)])
        return seen is not None and all(seen.get(tag) == epoch for tag, epoch in current.items())

    def _current(self, tiers: Tiers, tags: Iterable[str]) -> dict[str, int]:
        wanted = tuple(tags)
        known = tiers.epochs(wanted, tiers.generation())
        raised = self._raised
        return {tag: known[tag] + raised.get(tag, 0) for tag in wanted}

    def _shared(self, tiers: Tiers, bundle: str, facts: Descriptor) -> dict[str, int] | None:
        """The shared epochs of the entry's tags; None when another host invalidated one."""
        shared = tiers.shared
        if shared is None or not facts.tags:
            return {}

        def ask() -> dict[str, int] | None:
            try:
                having = [layer for layer in self.all if bundle in layer.bundles()]
                tags = {tag for layer in having for tag in tags_of(layer, bundle)}
            except (StoreError, OSError):
                return None
            return shared.epochs_now([tag for tag in tags if not is_own(tag)])

        seen = self._sightings.seen(f"{bundle}.{shared.parts.where}", ask)
        if seen is None:
            return {}  # as long as nobody can be asked, nothing is known against it
        known = shared.epochs(facts.tags)
        if any(seen.get(tag) != epoch for tag, epoch in known.items()):
            return None
        return {tag: seen[tag] for tag in known}
