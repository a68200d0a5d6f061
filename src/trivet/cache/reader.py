"""Hits in memory for who asks a million times a second with one codec: memos."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from trivet.cache.outcomes import Hit
from trivet.codecs import Codec, LiveDecoder
from trivet.keys import Key

if TYPE_CHECKING:
    from trivet.cache.engine import Engine

T = TypeVar("T")
D = TypeVar("D")


def make_reader(engine: Engine, codec: Codec[T]) -> Callable[[Key, D], T | D]:
    """A function of a key and of what to return where `Engine.look_live` finds no hit.

    It takes half the time of that, since whatever never changes is looked up here and not at each
    hit, and all that isn't needed for the value is left out. Whatever is out of the ordinary it
    hands on.
    """
    tiers, look = engine.tiers, engine.look_live
    codec_id, decode = codec.id, None if codec.shareable else _decoder(codec)
    get, generation, shared = tiers.memory.get, tiers.generation, tiers.shared

    def read(key: Key, otherwise: D) -> T | D:
        entry = get(key.digest)
        if (
            entry is None
            or (entry.key is not key and entry.key != key)
            or entry.generation != generation()
            or entry.expires is not None
            or entry.descriptor.codec != codec_id
            or entry.descriptor.failure is not None
            or not tiers.is_silent
            or (shared is not None and not shared.view.is_fresh())
        ):
            found = look(key, codec)
            return found.value if type(found) is Hit else otherwise
        tiers.hits += 1
        live = entry.value
        return live if decode is None else decode(live)

    return read


def _decoder(codec: Codec[T]) -> Callable[[bytes], T]:
    """What makes a value of bytes in memory, which were verified when they came there."""
    if isinstance(codec, LiveDecoder):
        return codec.decode_live
    return lambda raw: codec.decode(memoryview(raw))
