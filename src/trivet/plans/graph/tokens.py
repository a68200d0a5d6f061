"""Tokens: an unambiguous byte stream of numbers, byte strings and brackets, hashed as it grows."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable

from blake3 import blake3

_NUMBER, _DATA, _DIGEST, _BEGIN, _END = range(5)
_FLUSH = 1 << 16
_LONG = 1 << 12
_MANY = _LONG // 8
_head = struct.Struct("<BIQ").pack
_numbered = struct.Struct("<BIQBIQ").pack
END = _head(_END, 0, 0)


class Tokens:
    """A token stream and its BLAKE3 digest.

    Every token says its kind, a label and its length, so that no two sequences of tokens have the
    same bytes. Labels are small numbers that say what a token stands for.
    """

    __slots__ = ("_hasher", "_pending")

    def __init__(self, context: str) -> None:
        self._hasher = blake3(derive_key_context=context)
        self._pending = bytearray()

    def number(self, label: int, value: int) -> None:
        """``value`` is unsigned, 64 bits."""
        self._pending += _head(_NUMBER, label, value)

    def data(self, label: int, value: bytes) -> None:
        """A byte string; a long one goes in by its digest."""
        if len(value) > _LONG:
            self.digest(label, len(value), blake3(value).digest())
        else:
            self._pending += _head(_DATA, label, len(value)) + value

    def numbered(self, label: int, number: int, data_label: int, value: bytes) -> None:
        """`number`, then `data`."""
        if len(value) > _LONG:
            self.number(label, number)
            self.data(data_label, value)
        else:
            size = len(value)
            self._pending += _numbered(_NUMBER, label, number, _DATA, data_label, size) + value

    def digest(self, label: int, size: int, digest: bytes) -> None:
        """A byte string of ``size`` bytes that was hashed elsewhere."""
        self._pending += _head(_DIGEST, label, size) + digest
        if len(self._pending) > _FLUSH:
            self._flush()

    def begin(self, label: int) -> None:
        """Open a bracket."""
        self._pending += _head(_BEGIN, label, 0)

    def end(self) -> None:
        """Close the innermost bracket."""
        self.append(END)

    def append(self, tokens: bytes) -> None:
        """Tokens taken from a `Piece`, or made by a function of this module."""
        self._pending += tokens
        if len(self._pending) > _FLUSH:
            self._flush()

    def finish(self) -> bytes:
        """The digest of everything so far, 32 bytes."""
        self._flush()
        return self._hasher.digest()

    def _flush(self) -> None:
        self._hasher.update(self._pending)
        self._pending.clear()


class Piece(Tokens):
    """A few tokens that are kept as bytes, to be appended again and again."""

    __slots__ = ()

    def __init__(self) -> None:
        self._pending = bytearray()

    def taken(self) -> bytes:
        """All tokens so far."""
        return bytes(self._pending)

    def _flush(self) -> None:
        """There is nothing to hash them into."""


def short(*parts: tuple[int, bytes]) -> bytes:
    """Tokens of short byte strings."""
    return b"".join(_head(_DATA, label, len(value)) + value for label, value in parts)


def lists(label: int, numbers: list[int], other_label: int, others: list[int]) -> bytes:
    """Tokens of two lists of numbers: `Tokens.data` of each, as little-endian 64-bit integers."""
    count, other_count = len(numbers), len(others)
    if count > _MANY or other_count > _MANY:
        piece = Piece()
        piece.data(label, struct.pack(f"<{count}Q", *numbers))
        piece.data(other_label, struct.pack(f"<{other_count}Q", *others))
        return piece.taken()
    return _packer(count, other_count)(
        _DATA, label, 8 * count, *numbers, _DATA, other_label, 8 * other_count, *others
    )


@functools.lru_cache(256)
def _packer(count: int, other_count: int) -> Callable[..., bytes]:
    return struct.Struct(f"<BIQ{count}QBIQ{other_count}Q").pack
