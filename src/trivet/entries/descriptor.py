"""`Descriptor`: what is known about a value without looking at it."""

from __future__ import annotations

import msgspec

from trivet.errors import CorruptEntry


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why computing the value failed, recorded so that nobody tries again for nothing."""

    error_class: str
    text: str


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts beside a value: for policies, lifetimes, the doctor and bundles.

    Attributes:
        codec: id of the codec that made the payload; the reader's must be equal.
        created: seconds since the epoch.
        expires: seconds since the epoch, or None for no end.
        cost: seconds that computing the value took.
        size: bytes that the value occupies, files included; what budgets count.
        tags: dependency tag to the tag's epoch when the computation began. The entry is valid only
            while every epoch is still the same.
        group: quota group, ``"partition/graph"``; empty for none.
        failure: set for a recorded failure; the payload is then empty.
        detail: domain facts, such as a plan's instruction set; plain MessagePack types only.
    """

    codec: str
    created: float
    expires: float | None = None
    cost: float = 0.0
    size: int = 0
    tags: dict[str, int] = {}
    group: str = ""
    failure: Failure | None = None
    detail: dict[str, object] = {}

    def encode(self) -> bytes:
        """MessagePack; unknown fields of later versions are ignored when read."""
        return _encode(self)

    @classmethod
    def decode(cls, raw: bytes | memoryview) -> Descriptor:
        """Raises `CorruptEntry` when ``raw`` is not a descriptor."""
        try:
            return _decode(raw)
        except msgspec.MsgspecError as error:
            raise CorruptEntry(f"the descriptor can't be read: {error}") from error


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(Descriptor).decode
