"""Codecs for bytes and for plain data."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Bytes:
    """Bytes as they are."""

    id = "bytes/1"
    shareable = True

    def encode(self, value: bytes) -> bytes:
        """``value`` itself."""
        return bytes(value)

    def decode(self, raw: memoryview) -> bytes:
        """A copy of ``raw``."""
        return bytes(raw)


class MsgPack(Generic[T]):
    """Values of one type (plain data, `msgspec.Struct`, dataclass) as MessagePack.

    Args:
        kind: the type to decode into; decoding is strict.
    """

    shareable = False

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self.id = f"msgpack/1:{kind.__qualname__}"

    def encode(self, value: T) -> bytes:
        """Raises TypeError when ``value`` has no MessagePack form."""
        return self._encoder.encode(value)

    def decode(self, raw: memoryview) -> T:
        """Raises `msgspec.ValidationError` (a ValueError) on other data."""
        return self._decoder.decode(raw)
