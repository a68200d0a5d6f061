"""A codec that keeps arrays in fewer bytes, within an error that its user states.

Each row takes the smallest form that keeps within the bound, which is verified on the row itself.
What compresses is compressed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from trivet.codecs.arrays import item_size
from trivet.codecs.narrow import AS_IT_IS, CHEAPEST_FIRST, FORMS, scales_of
from trivet.codecs.packing import Packed, pack, unpack

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_WIDTH = 256  # elements of a row, where the array has no rows of its own
_MAX_RANK = 32
_Length = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]


class _Compact(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    shape: Annotated[tuple[_Length, ...], msgspec.Meta(max_length=_MAX_RANK)]
    axis: Annotated[int, msgspec.Meta(ge=0, lt=_MAX_RANK)]
    forms: memoryview  # a byte for each row
    scales: memoryview  # float32, of the rows that have one, by form
    parts: Annotated[list[Packed], msgspec.Meta(max_length=7)]  # by form


class Compact:
    """Arrays of numbers, kept in fewer bytes.

    An element ``x`` comes back as ``y`` with ``|x - y| <= max(absolute, relative * |x|)``.
    Infinities and NaN stay what they are. Without a bound, and for integers, booleans and complex
    numbers, ``y`` is ``x`` to the bit.

    Args:
        absolute, relative: the bound.
        axis: each entry along it is a row with a scale and form of its own; 1 for channels of
            ``(batch, channels, ...)``. Arrays without that axis are cut into rows of 256.

    Raises ValueError for a bound that is none.
    """

    shareable = True

    def __init__(self, *, absolute: float = 0.0, relative: float = 0.0, axis: int = 0) -> None:
        if not (0 <= absolute < math.inf and 0 <= relative < 1 and 0 <= axis < _MAX_RANK):
            raise ValueError(
                f"a bound is not negative, and relative below 1: {absolute}, {relative}; "
                f"an axis counts from 0: {axis}"
            )
        self._absolute, self._relative, self._axis = absolute, relative, axis
        # With the bound: what was kept within a looser one is no answer.
        self.id = f"compact/1 {absolute!r} {relative!r}"

    def encode(self, value: Array) -> bytes:
        """Raises TypeError for what is not an array of numbers or booleans."""
        import numpy as np

        if type(value) not in (np.ndarray, np.memmap):  # subclasses mean more than their numbers
            raise TypeError(f"Compact keeps arrays, not a {type(value).__name__}")
        dtype = value.dtype.newbyteorder("<")
        try:
            size = item_size(dtype.str)
        except ValueError as error:
            raise TypeError(str(error)) from None
        if value.ndim > _MAX_RANK:
            raise TypeError(f"an array of rank {value.ndim} can't be kept")
        rows = _rows(value.astype(dtype, copy=False), self._axis)
        forms, narrow = self._choose(rows, size)
        scales, parts = b"", []
        for number in sorted({*forms.tolist()}):
            if number == AS_IT_IS:
                left = np.ascontiguousarray(rows[forms == AS_IT_IS])
                parts.append(pack(left.reshape(-1, 1).view(np.uint8)))
            else:
                kept, scale = narrow[number]
                parts.append(pack(kept.reshape(-1, kept.shape[-1])))
                scales += scale.astype("<f4").tobytes() if FORMS[number].largest else b""
        packed = _Compact(
            dtype.str,
            value.shape,
            self._axis,
            memoryview(forms.tobytes()),
            memoryview(scales),
            parts,
        )
        return msgspec.msgpack.encode(packed)

    def _choose(self, rows: Array, size: int) -> tuple[Array, dict[int, tuple[Array, Array]]]:
        """The form of each row, and by form the bytes and scales of its rows."""
        import numpy as np

        forms = np.full(len(rows), AS_IT_IS, np.uint8)
        is_any = rows.dtype.kind == "f" and bool(self._absolute or self._relative)
        left = np.arange(len(rows) if is_any and rows.size else 0)
        found: dict[int, tuple[Array, Array]] = {}
        with np.errstate(all="ignore"):
            for number in CHEAPEST_FIRST:
                form = FORMS[number]
                if form.size >= size or not len(left):
                    continue
                wide = rows[left].astype(np.float64)
                scale = scales_of(wide, form.largest)
                kept = form.keep(wide, scale.astype(np.float64))
                back = form.restore(kept, scale.astype(np.float64)).astype(rows.dtype)
                fits = self._is_within(wide, back.astype(np.float64)).all(axis=1)
                if fits.any():
                    forms[left[fits]] = number
                    found[number] = kept[fits], scale[fits]
                    left = left[~fits]
        return forms, found

    def _is_within(self, exact: Array, back: Array) -> Array:
        import numpy as np

        bound = np.maximum(self._absolute, self._relative * np.abs(exact))
        same: Array = (exact == back) | (np.isnan(exact) & np.isnan(back))
        near: Array = np.isfinite(exact) & np.isfinite(back) & (np.abs(exact - back) <= bound)
        return same | near

    def decode(self, raw: memoryview) -> Array:
        """Raises ValueError when the bytes are no such array."""
        import numpy as np

        try:
            packed: _Compact = _decode(raw)
        except msgspec.MsgspecError as error:
            raise ValueError(f"these bytes are no array: {error}") from error
        count, width = _extent(packed.shape, packed.axis)
        forms = np.frombuffer(packed.forms, np.uint8)
        numbers = sorted({*forms.tolist()})
        if len(forms) != count or len(packed.parts) != len(numbers) or len(packed.scales) % 4:
            raise ValueError("an array's shape, forms and parts don't fit")
        scales = np.frombuffer(packed.scales, "<f4").astype(np.float64)[:, None]
        found = []
        for number, part in zip(numbers, packed.parts, strict=True):
            here = forms == number
            restored, scales = _restored(
                packed.dtype, number, part, (int(here.sum()), width), scales
            )
            found.append((here, restored))
        if len(scales):
            raise ValueError("an array has more scales than rows")
        rows = np.empty((count, width), packed.dtype)
        for here, restored in found:
            rows[here] = restored
        # Not just marked: who owns an array may take such a mark away.
        array: Any = _array(rows, packed.shape, packed.axis)
        return np.asarray(memoryview(array).toreadonly())


def _restored(
    dtype: str, number: int, part: Packed, shape: tuple[int, int], scales: Array
) -> tuple[Array, Array]:
    """The rows of one form, and the scales that are left."""
    import numpy as np

    size = item_size(dtype)
    if number == AS_IT_IS:
        return unpack(part, shape[0] * shape[1], size).view(dtype).reshape(shape), scales
    form = FORMS.get(number)
    if form is None or dtype[1] != "f" or form.size >= size:
        raise ValueError(f"elements of type {dtype} have no form {number}")
    data = unpack(part, shape[0] * shape[1], form.size).reshape(*shape, form.size)
    count = shape[0] if form.largest else 0
    if len(scales) < count:
        raise ValueError("an array has fewer scales than rows")
    with np.errstate(all="ignore"):
        restored = form.restore(data, scales[:count] if count else np.ones((shape[0], 1)))
        return restored.astype(dtype), scales[count:]


def _extent(shape: tuple[int, ...], axis: int) -> tuple[int, int]:
    """Rows, and elements of one."""
    count = math.prod(shape)
    if axis < len(shape) and len(shape) > 1:
        return shape[axis], count // shape[axis] if shape[axis] else 0
    if count <= _WIDTH:
        return min(count, 1), count
    return -(-count // _WIDTH), _WIDTH


def _rows(value: Array, axis: int) -> Array:
    import numpy as np

    count, width = _extent(value.shape, axis)
    if axis < value.ndim and value.ndim > 1:
        value = np.moveaxis(value, axis, 0)
    flat = np.ascontiguousarray(value).reshape(-1)
    if count * width > len(flat):
        flat = np.concatenate([flat, np.zeros(count * width - len(flat), flat.dtype)])
    return flat.reshape(count, width)


def _array(rows: Array, shape: tuple[int, ...], axis: int) -> Array:
    import numpy as np

    if axis < len(shape) and len(shape) > 1:
        moved = (shape[axis], *shape[:axis], *shape[axis + 1 :])
        return np.ascontiguousarray(np.moveaxis(rows.reshape(moved), 0, axis))
    return rows.reshape(-1)[: math.prod(shape)].reshape(shape).copy()


_decode = msgspec.msgpack.Decoder(_Compact).decode
