"""`Descriptor`: what is known about a value without looking at it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from trivet.entries.encoding import encode
from trivet.errors import CorruptEntry

# The bounds refuse NaN and infinities, which would otherwise compare as "never expires".
_Time = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
_Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e18)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why computing the value failed, recorded so that nobody tries again for nothing."""

    error_class: str
    text: str


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Facts beside a value: for policies, lifetimes, the doctor and bundles.

    Attributes:
        codec: id of the codec that made the payload; the reader's must be equal.
        created: seconds since the epoch.
        expires: seconds since the epoch, or None for no end.
        stale: seconds after ``expires`` in which it may answer who accepts that.
        cost: seconds that computing the value took.
        size: bytes that the value occupies, files included; what budgets count.
        tags: dependency tag to the tag's epoch when the computation began. The entry is valid only
            while every epoch is still the same. In the host's tier these are the host's epochs, in
            the shared tier those of the shared tier.
        shared: in the host's tier, the tags' epochs in the shared tier, as far as they were known.
        group: quota group, ``"partition/graph"``; empty for none.
        failure: set for a recorded failure; the payload is then empty.
        detail: domain facts, such as a plan's instruction set; plain MessagePack types only.
    """

    codec: str
    created: _Time
    expires: _Time | None = None
    stale: _Seconds = 0.0
    cost: _Seconds = 0.0
    size: _Count = 0
    tags: dict[str, _Count] = {}
    shared: dict[str, _Count] = {}
    group: str = ""
    failure: Failure | None = None
    detail: dict[str, object] = {}

    def is_over(self, now: float) -> bool:
        """Whether it answers nobody any more at ``now``, seconds since the epoch."""
        return self.expires is not None and not now < self.expires + self.stale

    def encode(self) -> bytes:
        """MessagePack; unknown fields of later versions are ignored when read.

        Raises ValueError when no reader would accept it: a time that is not finite, a negative
        count, a detail that is not plain data.
        """
        try:
            raw = encode(self)
            decode(raw)  # a writer must not make what every reader takes for damage
        except (msgspec.ValidationError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"the descriptor can't be written: {error}") from error
        return raw

    @classmethod
    def decode(cls, raw: bytes | memoryview) -> Descriptor:
        """Raises `CorruptEntry` when ``raw`` is not a descriptor."""
        try:
            return decode(raw)
        except (ValueError, RecursionError) as error:
            raise CorruptEntry(f"the descriptor can't be read: {error}") from error


# For the hot path, which takes errors as they come.
decode = msgspec.msgpack.Decoder(Descriptor).decode
