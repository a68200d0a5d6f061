"""Bytes of arrays, compressed where that pays: as they are, or sorted by their place in an element.

Sorting ("byte shuffle", as in Blosc) puts the bytes of exponents together, which differ little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_SAMPLE = 1 << 14  # bytes at the beginning, middle and end that are tried
_PAYS = 0.9  # of the size, from which compressing is worth the time
_LEVEL = 1
_MOST = 1 << 16  # times that bytes may become more; zstd makes a run of zeros half of that


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """Bytes, and how they are packed."""

    is_compressed: bool
    is_shuffled: bool
    data: memoryview


def pack(elements: Array) -> Packed:
    """``elements``: bytes of shape (elements, size of one)."""
    plain = elements.tobytes()
    best, is_shuffled = plain, False
    ratio = _PAYS
    for shuffled in (False, True) if elements.shape[-1] > 1 else (False,):
        sample = _sample(elements)
        tried = sample.T.tobytes() if shuffled else sample.tobytes()
        now = len(_compress(tried)) / max(1, len(tried))
        if now < ratio:
            ratio, is_shuffled = now, shuffled
            best = elements.T.tobytes() if shuffled else plain
    if ratio < _PAYS:
        packed = _compress(best)
        if len(packed) < len(plain):
            return Packed(True, is_shuffled, memoryview(packed))
    return Packed(False, False, memoryview(plain))


def unpack(packed: Packed, count: int, size: int) -> Array:
    """The ``count`` elements of ``size`` bytes: shape (count, size). Raises ValueError."""
    import numpy as np

    expected = count * size
    data: Any = packed.data
    if packed.is_compressed and expected <= _MOST * len(data):
        import zstandard

        try:
            # Else the frame itself decides how much room is made.
            if zstandard.frame_content_size(data) == expected:
                data = zstandard.ZstdDecompressor().decompress(data)
        except zstandard.ZstdError as error:
            raise ValueError(f"an array's bytes can't be decompressed: {error}") from error
    if len(data) != expected:
        raise ValueError(f"an array needs {expected} bytes, there are {len(data)}")
    flat = np.frombuffer(data, np.uint8)
    if packed.is_shuffled:
        flat = np.ascontiguousarray(flat.reshape(size, -1).T)
    return flat.reshape(count, size)


def _sample(elements: Array) -> Array:
    import numpy as np

    few = max(1, _SAMPLE // elements.shape[-1])
    if len(elements) <= 3 * few:
        return elements
    middle = len(elements) // 2
    return np.concatenate([elements[:few], elements[middle : middle + few], elements[-few:]])


def _compress(data: bytes) -> bytes:
    import zstandard

    compressed: bytes = zstandard.ZstdCompressor(level=_LEVEL).compress(data)
    return compressed
