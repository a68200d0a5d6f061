"""Fingerprints: 32 bytes that stand for a content, and chains of them."""

from __future__ import annotations

from collections.abc import Iterable

from blake3 import blake3

from trivet.errors import InvalidKey

SIZE = 32
_CHAIN_CONTEXT = "trivet 2026 fingerprint chain v1"


class Fingerprint(bytes):
    """The BLAKE3 digest of some content, 32 bytes.

    Raises `InvalidKey` when built from anything but 32 bytes.
    """

    __slots__ = ()

    def __new__(cls, value: bytes) -> Fingerprint:
        if not isinstance(value, bytes):
            raise InvalidKey(f"a fingerprint is made of bytes, got {type(value).__name__}")
        if len(value) != SIZE:
            raise InvalidKey(f"a fingerprint has {SIZE} bytes, got {len(value)}")
        return super().__new__(cls, value)

    @classmethod
    def of(cls, content: bytes | bytearray | memoryview) -> Fingerprint:
        """Fingerprint of ``content``."""
        return cls(blake3(content).digest())

    @classmethod
    def chain(cls, parent: Fingerprint, part: bytes) -> Fingerprint:
        """Fingerprint of ``part`` in the context of everything before it.

        The domain is separate from `of`, so a chain never equals the fingerprint of a content.
        """
        return cls(blake3(parent + part, derive_key_context=_CHAIN_CONTEXT).digest())

    @classmethod
    def of_parts(cls, parts: Iterable[bytes]) -> Fingerprint:
        """Fingerprint of a sequence of parts; their boundaries count."""
        hasher = blake3(derive_key_context="trivet 2026 fingerprint parts v1")
        for part in parts:
            hasher.update(len(part).to_bytes(8, "little"))
            hasher.update(part)
        return cls(hasher.digest())

    def __repr__(self) -> str:
        return f"Fingerprint({self.hex()[:16]}…)"
