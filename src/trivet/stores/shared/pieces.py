"""Large values in Valkey, in pieces of their content: no command is long, only what is new is sent.

A server does one thing at a time, so a value of 100 MB in one name keeps all others waiting. Its
payload lies in ``trivet:piece:<blake3>`` instead, and under the entry's own name stands its head
with the list of pieces: MessagePack [[digest, length], ...]. The list is written last, and ends
before its pieces do, so a value is there as a whole or not at all.

A piece's name says what it holds, so two who send the same write the same, and a value that has
changed in places is sent in places. What nothing lists any more ends with its time; what an upload
left that did not come to its list, within the hour.
"""

from __future__ import annotations

import msgspec
from blake3 import blake3

from trivet.entries import head_length, payload_length
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreFull
from trivet.stores.bundles.chunks import Cutter
from trivet.stores.shared.chunks import Recipe, decode_recipe
from trivet.stores.shared.valkey import KEEP_SECONDS, ValkeyStore

WHOLE_BYTES = 1 << 20  # of a sealed value that stays in one name
_LEAST, _USUAL, _MOST = 64 << 10, 256 << 10, 1 << 20
_MARGIN = 3_600_000  # milliseconds that pieces live on: more than an upload takes

# Whether the piece is there; if so, for ARGV[1] ms at least from now on.
_HAS = """
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return 0 end
if left >= 0 and left < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return 1
"""


class Pieces:
    """Entries of any size in one `ValkeyStore`."""

    def __init__(self, values: ValkeyStore) -> None:
        self._values = values

    def offer(self, digest: bytes, sealed: bytes, token: int, seconds: float | None) -> bool:
        """See `ValkeyStore.offer`. Raises `MissingExtra` when pyfastcdc is not installed."""
        if len(sealed) <= WHOLE_BYTES:
            return self._values.offer(digest, sealed, token, seconds)
        start = head_length(sealed)
        recipe: Recipe = []
        for chunk in Cutter(_LEAST, _USUAL, _MOST).cut(sealed[start:]):
            recipe.append((chunk.digest, len(chunk.data)))
            if not self._has(chunk.digest, _MARGIN):
                self._send(chunk.digest, chunk.data)
        keep = KEEP_SECONDS if seconds is None else min(seconds, KEEP_SECONDS)
        if not all(self._has(each, int(keep * 1000) + _MARGIN) for each, _ in recipe):
            raise StoreFull("Valkey has removed a piece of a value before all were there")
        listed = sealed[:start] + msgspec.msgpack.encode(recipe)
        return self._values.offer(digest, listed, token, seconds)

    def read(self, digest: bytes) -> bytes | None:
        """See `Store.read`.

        Raises `CorruptEntry` when a piece is missing or damaged; a damaged one is removed.
        """
        raw = self._values.read(digest)
        if raw is None:
            return None
        try:
            start, size = head_length(raw), payload_length(raw)
        except (CorruptEntry, IncompatibleEntry):
            return raw  # for who judges it
        if len(raw) - start == size:
            return raw
        recipe = decode_recipe(raw[start:])
        if sum(length for _, length in recipe) != size:
            raise CorruptEntry("the list of a value's pieces is not what was stored")
        return raw[:start] + b"".join(self._fetch(*each) for each in recipe)

    def _has(self, digest: bytes, milliseconds: int) -> bool:
        """Whether a piece is there, and will be for so long."""
        with self._values.asking("write"):
            return bool(self._values.client.eval(_HAS, 1, piece_name(digest), milliseconds))

    def _send(self, digest: bytes, data: bytes | memoryview) -> None:
        with self._values.asking("write"):
            self._values.client.set(piece_name(digest), bytes(data), px=_MARGIN)

    def _fetch(self, digest: bytes, size: int) -> bytes:
        name = piece_name(digest)
        with self._values.asking("read"):
            data: bytes | None = self._values.client.get(name)
        if data is None:
            raise CorruptEntry("a piece of a value is missing in the shared store")
        if len(data) != size or blake3(data).digest() != digest:
            with self._values.asking("delete"):
                self._values.client.execute_command("UNLINK", name)
            raise CorruptEntry("a piece of a value is not what was stored in the shared store")
        return data


def piece_name(digest: bytes) -> bytes:
    """Under which a piece is kept: by itself, so that a Cluster spreads them."""
    return b"trivet:piece:" + digest.hex().encode()
