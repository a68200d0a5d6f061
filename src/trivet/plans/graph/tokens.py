"""Tokens: an unambiguous byte stream of numbers, byte strings and brackets, hashed as it grows."""

from __future__ import annotations

import struct

from blake3 import blake3

_NUMBER, _DATA, _DIGEST, _BEGIN, _END = range(5)
_FLUSH = 1 << 16
_LONG = 1 << 12
_head = struct.Struct("<BIQ").pack


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
            self._pending += _head(_DATA, label, len(value))
            self._pending += value

    def digest(self, label: int, size: int, digest: bytes) -> None:
        """A byte string of ``size`` bytes that was hashed elsewhere."""
        self._pending += _head(_DIGEST, label, size)
        self._pending += digest
        if len(self._pending) > _FLUSH:
            self._flush()

    def begin(self, label: int) -> None:
        """Open a bracket."""
        self._pending += _head(_BEGIN, label, 0)

    def append(self, tokens: bytes) -> None:
        """Tokens made by `short`."""
        self._pending += tokens

    def end(self) -> None:
        """Close the innermost bracket."""
        self._pending += _head(_END, 0, 0)
        if len(self._pending) > _FLUSH:
            self._flush()

    def finish(self) -> bytes:
        """The digest of everything so far, 32 bytes."""
        self._flush()
        return self._hasher.digest()

    def _flush(self) -> None:
        self._hasher.update(self._pending)
        self._pending.clear()


def short(*parts: tuple[int, bytes]) -> bytes:
    """Tokens of short byte strings, to be appended again and again."""
    return b"".join(_head(_DATA, label, len(value)) + value for label, value in parts)
