"""The protocol that every codec follows."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class Codec(Protocol[T]):
    """Turns a value into bytes and back.

    ``decode(encode(x))`` equals ``x``, and decoding runs no code that the bytes choose. ``id`` is
    stored with the entry and compared when it is read: change it when the byte form changes.
    """

    @property
    def id(self) -> str:
        """Stable name with a version, such as ``"msgpack/1"``."""

    @property
    def shareable(self) -> bool:
        """True when decoded values can't be changed, so that one may be handed to many callers.

        Where it is False, every caller gets a value decoded for it alone.
        """

    def encode(self, value: T) -> bytes:
        """Bytes of ``value``. Raises TypeError or ValueError when it has none."""

    def decode(self, raw: memoryview) -> T:
        """The value. Must not keep ``raw``: it is only valid during the call.

        Raises ValueError when ``raw`` is not what `encode` makes.
        """
