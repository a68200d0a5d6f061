"""Trivet: a cache for AI inference.

Never compile or compute the same thing twice, and never serve a wrong cached thing.

Importing this package does no work; each name is loaded when it is first used.
"""

from __future__ import annotations

from trivet.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trivet.aio import AsyncCache
    from trivet.cache import Cache, Failed, Hit, Lease, Miss
    from trivet.codecs import Arrays, Bytes, Codec, MsgPack
    from trivet.errors import ComputeFailed, MissingExtra, TrivetError
    from trivet.events import Event, EventKind, MissReason
    from trivet.keys import Fingerprint, Key
    from trivet.plans.folders.checkpoint import checkpoint

__version__ = "0.1.0"

__getattr__ = lazily(
    __name__,
    {
        "Arrays": "codecs",
        "AsyncCache": "aio",
        "Bytes": "codecs",
        "Cache": "cache",
        "Codec": "codecs",
        "ComputeFailed": "errors",
        "Event": "events",
        "EventKind": "events",
        "Failed": "cache",
        "Fingerprint": "keys",
        "Hit": "cache",
        "Key": "keys",
        "Lease": "cache",
        "Miss": "cache",
        "MissReason": "events",
        "MissingExtra": "errors",
        "MsgPack": "codecs",
        "TrivetError": "errors",
        "checkpoint": "plans.folders.checkpoint",
    },
)

__all__ = [
    "Arrays",
    "AsyncCache",
    "Bytes",
    "Cache",
    "Codec",
    "ComputeFailed",
    "Event",
    "EventKind",
    "Failed",
    "Fingerprint",
    "Hit",
    "Key",
    "Lease",
    "Miss",
    "MissReason",
    "MissingExtra",
    "MsgPack",
    "TrivetError",
    "checkpoint",
]
