"""Version stamps: what a value is, part by part, as bytes that a reader keeps and sends back.

A part is a row of an array along its first axis, an item of a list, or an item of a dict; of values
with more than `PARTS` of them, several rows or items at once. So a stamp is bounded, and what has
changed since can be told without a history: what the reader has comes with its question.

Parts are told apart by 8 bytes of their BLAKE3. That selects; the digest over the whole digests of
all parts, which a stamp holds, too, confirms what `trivet.cache.changes.apply` has put together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from blake3 import blake3

from trivet.codecs import Codec
from trivet.codecs.arrays import item_size

PARTS = 4096
_BITS = 12  # that tell so many parts of a larger dict apart
_BYTES = 8  # of a digest that selects
_KEYS = frozenset({str, int, float, bool, bytes, type(None)})


class Stamp(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A version of a value.

    Attributes:
        root: digest of all of it.
        like: codec, kind and type of its parts; parts of other values are not compared.
        grain: rows in a part, or bits of a key's digest that name a part.
        length: rows or items.
        names: of the parts of a dict, ascending; empty where parts are counted.
        parts: 8 bytes of each part's digest, in order.
    """

    root: bytes
    like: str
    grain: int = 0
    length: int = 0
    names: tuple[int, ...] = ()
    parts: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """The bytes that readers keep: 64 KiB and a little at most."""
        flat = (b"".join(each.to_bytes(_BYTES, "big") for each in self.names), b"".join(self.parts))
        return _encode((self.root, self.like, self.grain, self.length, *flat))

    @classmethod
    def decode(cls, raw: bytes) -> Stamp | None:
        """None for what is no stamp, or of another release."""
        try:
            root, like, grain, length, names, parts = _decode(raw)
        except ValueError:
            return None
        return cls(
            root=root, like=like, grain=grain, length=length,
            names=tuple(int.from_bytes(each, "big") for each in _split(names)),
            parts=tuple(_split(parts)),
        )  # fmt: skip


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, str, int, int, bytes, bytes]).decode


def stamp_of(value: Any, codec: Codec[Any]) -> Stamp:
    """The stamp of a value that ``codec`` keeps; equal in all processes for equal values."""
    if type(value) in (dict, MappingProxyType) and all(map(_has_name, value)):
        return _of_items(value, codec)
    if type(value) is list and value:
        grain = grain_of(len(value))
        pieces = (codec.encode(value[i : i + grain]) for i in range(0, len(value), grain))
        return _of_rows(f"{codec.id} list", len(value), pieces)
    array = as_array(value)
    if array is not None:
        like = f"{codec.id} {array.dtype.str} {array.shape[1:]}"
        return _of_rows(like, len(array), _bytes_of_rows(array))
    return Stamp(root=blake3(codec.encode(value)).digest(), like=codec.id)


def as_array(value: Any) -> Any:
    """``value`` if it is a NumPy array of numbers with rows, else None."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or not (value.ndim and value.size):
        return None
    try:
        item_size(value.dtype.str)
    except ValueError:
        return None
    return value


def grain_of(length: int) -> int:
    """Rows in a part: a power of two, so that a value may grow a good while with the same."""
    grain = 1
    while grain * PARTS < length:
        grain *= 2
    return grain


def parts_of(value: Mapping[Any, Any], bits: int) -> dict[int, dict[Any, Any]]:
    """The items of a dict by the name of their part, in the same order everywhere."""
    found: dict[int, list[tuple[str, Any, Any]]] = {}
    for key, each in value.items():
        text = repr(key)
        name = int.from_bytes(blake3(text.encode()).digest(_BYTES), "big") >> (64 - bits)
        found.setdefault(name, []).append((text, key, each))
    return {
        name: {key: each for _, key, each in sorted(items, key=lambda item: item[0])}
        for name, items in sorted(found.items())
    }


def _of_items(value: Any, codec: Codec[Any]) -> Stamp:
    bits = 64 if len(value) <= PARTS else _BITS
    digests = {
        name: blake3(codec.encode(items)).digest() for name, items in parts_of(value, bits).items()
    }
    like = f"{codec.id} items"
    return Stamp(
        root=_root((like, bits, len(value), list(digests.items()))),
        like=like, grain=bits, length=len(value), names=tuple(digests),
        parts=tuple(each[:_BYTES] for each in digests.values()),
    )  # fmt: skip


def _of_rows(like: str, length: int, pieces: Iterator[Any]) -> Stamp:
    digests = [blake3(piece).digest() for piece in pieces]
    return Stamp(
        root=_root((like, length, digests)),
        like=like, grain=grain_of(length), length=length,
        parts=tuple(each[:_BYTES] for each in digests),
    )  # fmt: skip


def _bytes_of_rows(array: Any) -> Iterator[memoryview]:
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    step = grain_of(len(array)) * (len(flat) // len(array))
    return (flat[i : i + step] for i in range(0, len(flat), step))


def _root(content: object) -> bytes:
    return blake3(_encode(content)).digest()


def _has_name(key: object) -> bool:
    """Whether ``repr`` tells ``key`` from all others, by type, too."""
    return type(key) in _KEYS or (type(key) is tuple and all(map(_has_name, key)))


def _split(raw: bytes) -> list[bytes]:
    return [raw[i : i + _BYTES] for i in range(0, len(raw), _BYTES)]
