"""What changed from one bundle to another."""

from __future__ import annotations

import msgspec

from trivet.entries import Descriptor
from trivet.entries.bundle import EntryRecord
from trivet.keys import Key
from trivet.stores.bundles.reader import Bundle


class Change(msgspec.Struct, frozen=True):
    """One entry: bytes in all, and those of them that the other bundle does not have."""

    key: Key
    descriptor: Descriptor
    size: int
    new: int


class Difference(msgspec.Struct, frozen=True):
    """From bundle A to bundle B.

    Attributes:
        added: entries of B alone. removed: entries of A alone. changed: entries under the same key
            with other content, as they are in B. same: how many are equal.
        shared: bytes of chunks that both have. new: bytes of chunks that B alone has.
    """

    added: list[Change]
    removed: list[Change]
    changed: list[Change]
    same: int
    shared: int
    new: int


def compare(a: Bundle, b: Bundle) -> Difference:
    """The difference. Keys and descriptors are verified, files are compared by their chunks.

    Raises as `Bundle.item`.
    """
    before, after = _pieces(a), _pieces(b)
    in_a, in_b = _chunks(a), _chunks(b)
    both = [digest for digest in after if digest in before]
    changed = [digest for digest in both if before[digest] != after[digest]]
    records_a, records_b = _records(a), _records(b)
    return Difference(
        added=[_change(b, records_b[digest], in_a) for digest in after if digest not in before],
        removed=[_change(a, records_a[digest], in_b) for digest in before if digest not in after],
        changed=[_change(b, records_b[digest], in_a) for digest in changed],
        same=len(both) - len(changed),
        shared=sum(size for digest, size in in_b.items() if digest in in_a),
        new=sum(size for digest, size in in_b.items() if digest not in in_a),
    )


def _chunks(bundle: Bundle) -> dict[bytes, int]:
    contents = bundle.contents
    return {contents.digest_of(n): size for n, size in enumerate(contents.lengths)}


def _pieces(bundle: Bundle) -> dict[bytes, list[list[bytes]]]:
    """Of each entry, the digests of the chunks of its sealed bytes and its files."""
    contents = bundle.contents
    return {
        entry.digest: [
            [contents.digest_of(number) for number in blob] for blob in (entry.sealed, *entry.files)
        ]
        for entry in contents.entries
    }


def _records(bundle: Bundle) -> dict[bytes, EntryRecord]:
    return {each.digest: each for each in bundle.contents.entries}


def _change(bundle: Bundle, record: EntryRecord, known: dict[bytes, int]) -> Change:
    contents = bundle.contents
    item = bundle.item(record)
    chunks = {number for blob in (record.sealed, *record.files) for number in blob}
    return Change(
        item.key,
        item.descriptor,
        sum(contents.size_of(blob) for blob in (record.sealed, *record.files)),
        sum(contents.lengths[n] for n in chunks if contents.digest_of(n) not in known),
    )
