"""Rows of floats in fewer bits: how elements are kept, and what comes back.

Integers of 8 bits with a scale for each row; floats of 8 bits, scaled likewise (E4M3: Micikevicius
et al., "FP8 formats for deep learning", 2022); floats of 16 and 32 bits; two integers, of which the
second corrects what the first leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

AS_IT_IS, INT8, E4M3, FLOAT16, BFLOAT16, FLOAT32, INT8_TWICE = range(7)


class Form(NamedTuple):
    """How rows become elements of ``size`` bytes, and come back.

    ``keep`` takes rows as float64 of shape (rows, elements), and scales of shape (rows, 1), and
    returns bytes of shape (rows, elements, size); ``restore`` does the reverse. A row's largest
    element is scaled to ``largest``; where that is 0 there is no scale.
    """

    size: int
    largest: float
    keep: Callable[[Array, Array], Array]
    restore: Callable[[Array, Array], Array]


def scales_of(rows: Array, largest: float) -> Array:
    """Of each row what its largest element is divided by to be ``largest``: float32, (rows, 1)."""
    import numpy as np

    if not largest:
        return np.ones((len(rows), 1), np.float32)
    most = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    scale = (most / largest).astype(np.float32)
    usable: Array = np.where(np.isfinite(scale) & (scale > 0), scale, np.float32(1))
    return usable


def _keep_int8(rows: Array, scale: Array) -> Array:
    import numpy as np

    whole: Array = np.clip(np.nan_to_num(np.rint(rows / scale)), -127, 127)
    return whole.astype(np.int8).view(np.uint8)[..., None]


def _restore_int8(data: Array, scale: Array) -> Array:
    import numpy as np

    whole: Array = np.ascontiguousarray(data[..., 0]).view(np.int8).astype(np.float64)
    restored: Array = whole * scale
    return restored


def _keep_twice(rows: Array, scale: Array) -> Array:
    import numpy as np

    first = _keep_int8(rows, scale)
    rest = rows - _restore_int8(first, scale)
    return np.concatenate([first, _keep_int8(rest, scale / 254)], axis=-1)


def _restore_twice(data: Array, scale: Array) -> Array:
    return _restore_int8(data[..., :1], scale) + _restore_int8(data[..., 1:], scale / 254)


def _e4m3() -> Array:
    """The values of its positive numbers, in order: four bits of exponent, three of mantissa."""
    import numpy as np

    exponent, mantissa = np.divmod(np.arange(127), 8)
    normal = 2.0 ** (exponent - 7) * (1 + mantissa / 8)
    return np.where(exponent == 0, 2.0**-6 * mantissa / 8, normal)


def _keep_e4m3(rows: Array, scale: Array) -> Array:
    import numpy as np

    values = _e4m3()
    nearest = np.searchsorted((values[1:] + values[:-1]) / 2, np.abs(rows / scale))
    return (nearest.astype(np.uint8) | (np.signbit(rows) * np.uint8(128)))[..., None]


def _restore_e4m3(data: Array, scale: Array) -> Array:
    import numpy as np

    codes = data[..., 0]
    values: Array = np.append(_e4m3(), np.nan)[codes & 127]
    signed: Array = np.where(codes & 128, -values, values)
    return signed * scale


def _floats(kind: str) -> tuple[Callable[[Array, Array], Array], Callable[[Array, Array], Array]]:
    def keep(rows: Array, _: Array) -> Array:
        import numpy as np

        narrow = np.ascontiguousarray(rows.astype(kind))
        return narrow.view(np.uint8).reshape(*rows.shape, -1)

    def restore(data: Array, _: Array) -> Array:
        import numpy as np

        return np.ascontiguousarray(data).view(kind)[..., 0].astype(np.float64)

    return keep, restore


def _keep_bfloat16(rows: Array, _: Array) -> Array:
    import numpy as np

    bits = rows.astype("<f4").view("<u4").astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    upper = np.where(np.isnan(rows), np.uint64(0x7FC0), rounded)
    return np.ascontiguousarray(upper.astype("<u2")).view(np.uint8).reshape(*rows.shape, 2)


def _restore_bfloat16(data: Array, _: Array) -> Array:
    import numpy as np

    upper = np.ascontiguousarray(data).view("<u2")[..., 0].astype("<u4")
    return (upper << np.uint32(16)).view("<f4").astype(np.float64)


FORMS = {
    INT8: Form(1, 127.0, _keep_int8, _restore_int8),
    E4M3: Form(1, 448.0, _keep_e4m3, _restore_e4m3),
    FLOAT16: Form(2, 0.0, *_floats("<f2")),
    BFLOAT16: Form(2, 0.0, _keep_bfloat16, _restore_bfloat16),
    FLOAT32: Form(4, 0.0, *_floats("<f4")),
    INT8_TWICE: Form(2, 127.0, _keep_twice, _restore_twice),
}
CHEAPEST_FIRST = (INT8, E4M3, FLOAT16, BFLOAT16, INT8_TWICE, FLOAT32)
