"""Codecs: how live values become bytes and come back. Pure; their ids are kept with the entry."""

from trivet.codecs.arrays import Arrays
from trivet.codecs.codec import Codec
from trivet.codecs.plain import Bytes, MsgPack

__all__ = ["Arrays", "Bytes", "Codec", "MsgPack"]
