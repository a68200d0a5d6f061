"""What the memory tier keeps."""

from __future__ import annotations

from typing import Any

import msgspec

from trivet.entries import Descriptor
from trivet.keys import Key


class MemoryEntry(msgspec.Struct, eq=False):
    """One live value, with what the engine needs to judge whether it may be used.

    Attributes:
        key: confirms what the digest selected.
        value: by reference; never copied, never changed here.
        descriptor: of the value; its ``group`` is the quota group.
        generation: the store's generation when the entry was last found valid.
        expires: seconds since the epoch, or None for no end.
        stamp: version stamp of the value, once somebody has asked for it.
    """

    key: Key
    value: Any
    descriptor: Descriptor
    generation: int = 0
    expires: float | None = None
    stamp: bytes | None = None
