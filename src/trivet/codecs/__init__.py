"""Codecs: how live values become bytes and come back. Pure; their ids are kept with the entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.codecs.codec import Codec, LiveDecoder
from trivet.codecs.plain import Bytes, MsgPack
from trivet.lazy import lazily

if TYPE_CHECKING:
    from trivet.codecs.arrays import Arrays
    from trivet.codecs.compact import Compact

__getattr__ = lazily(__name__, {"Arrays": "arrays", "Compact": "compact"})

__all__ = ["Arrays", "Bytes", "Codec", "Compact", "LiveDecoder", "MsgPack"]
