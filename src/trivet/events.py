"""What the engine reports: typed events, typed reasons for a miss, and where they go.

Logic never imports a metrics library. It hands frozen `Event` records to a `Sink`, a plain
callable; metrics, traces, the doctor and tests are sinks.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TypeAlias

import msgspec


class MissReason(enum.StrEnum):
    """Why a look-up did not answer. Every miss has exactly one."""

    ABSENT = "absent"  # nothing is stored under this digest
    EXPIRED = "expired"  # its lifetime is over
    INVALIDATED = "invalidated"  # a tag it depends on was invalidated
    KEY_MISMATCH = "key-mismatch"  # the digest is equal, the key is not
    CORRUPT = "corrupt"  # the bytes are not what was written; quarantined
    INCOMPATIBLE = "incompatible"  # another format, codec or machine
    UNAVAILABLE = "unavailable"  # the tier could not be asked
    BREAKER_OPEN = "breaker-open"  # this key was corrupt twice in a row
    CRASHED = "crashed"  # a process died while loading it; quarantined
    WAIT_TIMEOUT = "wait-timeout"  # the holder of the lease took too long; compute alone


class EventKind(enum.StrEnum):
    """What happened."""

    HIT = "hit"
    STALE = "stale"  # an entry answered whose lifetime is over, as it was asked to
    MISS = "miss"
    FAILURE_HIT = "failure-hit"  # a recorded failure answered
    COMMITTED = "committed"  # a lease was settled with a value
    REFUSED = "refused"  # a lease was settled with a recorded failure
    DROPPED = "dropped"  # a value was handed out but not stored; `detail` says why
    ABANDONED = "abandoned"  # a lease ended without any result; waiters elect a new leader
    REFRESH_FAILED = "refresh-failed"  # in the background; what is kept goes on answering
    WAITED = "waited"  # a look-up waited for somebody else's lease
    EVICTED = "evicted"  # removed from the host store to keep within its budget
    INVALIDATED = "invalidated"  # a tag's epoch was raised
    QUARANTINED = "quarantined"
    REBUILT = "rebuilt"  # the index was rebuilt from the files
    SHARED = "shared"  # an entry was given to the other hosts
    TIER_FAILED = "tier-failed"  # a tier could not read or write; the request goes on without it


class Tier(enum.StrEnum):
    """Where it happened."""

    MEMORY = "memory"
    HOST = "host"
    LAYER = "layer"
    SHARED = "shared"
    ENGINE = "engine"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to one key.

    ``seconds`` is the duration of the step, ``size`` is in bytes, ``detail`` is for people.
    """

    kind: EventKind
    tier: Tier
    space: str = ""
    digest: bytes = b""
    reason: MissReason | None = None
    seconds: float = 0.0
    size: int = 0
    detail: str = ""


Sink: TypeAlias = Callable[[Event], None]
