"""The one MessagePack encoder of descriptors and manifests."""

from __future__ import annotations

import msgspec


def _plain(value: object) -> bytes:
    """Fingerprints are bytes; msgspec takes only the built-in type."""
    if isinstance(value, bytes):
        return bytes(value)
    raise TypeError(f"values of type {type(value).__qualname__} are not plain data")


encode = msgspec.msgpack.Encoder(order="deterministic", enc_hook=_plain).encode
