"""The protocol that every codec follows, and one that some do."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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


@runtime_checkable
class LiveDecoder(Protocol[T_co]):
    """An optional part of a `Codec` that is not shareable: decodes hits of memos in memory.

    Worth having where checks take a large part of `Codec.decode`.
    """

    def decode_live(self, raw: bytes) -> T_co:
        """As `Codec.decode`, of bytes that were decoded before, or just made by `Codec.encode`."""
