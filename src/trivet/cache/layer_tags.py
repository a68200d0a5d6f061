"""The tags of what lies in layers: those that it came with, and two of this host's own."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trivet.entries import Descriptor, peek
from trivet.errors import CorruptEntry, IncompatibleEntry
from trivet.stores.layers import Layer


def is_own(tag: str) -> bool:
    """Whether a tag is one of this module's."""
    return tag.startswith(("entry=", "bundle="))


def entry_tag(digest: bytes) -> str:
    """The tag of one entry of a layer."""
    return f"entry={digest.hex()}"


def bundle_tag(bundle: str) -> str:
    """The tag of all entries that came with one bundle."""
    return f"bundle={bundle}"


def tags_of(layer: Layer, bundle: str) -> list[str]:
    """All tags that the entries of a bundle depend on, those of this module included.

    Raises OSError when the entries can't be listed: a note without them would hide them for
    good.
    """
    found = {bundle_tag(bundle): None}
    for digest, head in layer.heads(bundle):
        found[entry_tag(digest)] = None
        try:
            _, facts = peek(head)
        except (CorruptEntry, IncompatibleEntry):
            continue
        found.update(dict.fromkeys(facts.tags))
    return list(found)


def noted_in(facts: Descriptor, seen: Mapping[str, int] | None) -> Descriptor:
    """The descriptor with the epochs of the sighting; -1 for a tag that was not noted."""
    tags = {tag: (seen or {}).get(tag, -1) for tag in facts.tags}
    return msgspec.structs.replace(facts, tags=tags)
