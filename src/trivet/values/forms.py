"""What a value is, as a part of a key: by content, never by identity.

Two values have the same form only if a function can't tell them apart by type or content. So ``1``,
``True`` and ``1.0`` differ, a list differs from a tuple, and the order of a dict counts, since a
function may well iterate over it.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import sys
import uuid
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from blake3 import blake3

from trivet.errors import Unkeyable
from trivet.keys import FieldValue, Fingerprint

T = TypeVar("T")
Parts = Callable[[Any], object]

_INLINE = 256  # bytes of content that a key holds itself, so that people see what differs
_PARALLEL = 1 << 20  # bytes from which hashing with all cores pays
_DEEPEST = 10  # levels that a key holds itself
_TOO_DEEP = 100  # a value inside itself, or as good as that
_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 64) - 1  # what a key holds
_AS_THEY_ARE = frozenset({type(None), bool, float, bytes})
# Their arrays and scalars have no code of their own.
_PACKAGES_OF_DATA = frozenset({"numpy", "torch", "torch.nn.parameter"})
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def register(kind: type[T], parts: Callable[[T], object]) -> None:
    """Say what values of type ``kind`` are made of, so that they may be arguments.

    ``parts`` returns everything that a function could see of the value, as values that have a form
    themselves: a tuple of fields, a dict, a digest as bytes. It holds for the type itself and not
    for subclasses, which may have more to them. Registering again replaces.
    """
    _parts[kind] = parts


def form_of(value: object, kinds: set[type] | None = None) -> FieldValue:
    """The form of ``value``, for a key.

    The classes of what is in it, other than those of plain data, are added to ``kinds``: what their
    methods do is no part of the form.

    Raises `Unkeyable` for a type that nobody registered; the message says where in the value.
    """
    try:
        return _form(value, 0, set() if kinds is None else kinds)
    except RecursionError:
        raise Unkeyable("it is nested too deep, or holds itself") from None


def digest_of(content: bytes | bytearray | memoryview) -> bytes:
    """Bytes that stand for ``content``: itself where it is short, else its BLAKE3 digest."""
    view = memoryview(content)
    if view.nbytes <= _INLINE:
        return view.tobytes()
    threads = blake3.AUTO if view.nbytes >= _PARALLEL else 1
    return Fingerprint(blake3(view, max_threads=threads).digest())


def _form(value: Any, depth: int, kinds: set[type]) -> FieldValue:
    kind = type(value)
    if kind in _AS_THEY_ARE:
        same: FieldValue = value
        return same if kind is not bytes or len(value) <= _INLINE else ("bytes", digest_of(value))
    if kind is str:
        return _text(value)
    if kind is int:
        return value if _LEAST_INT <= value <= _MOST_INT else ("int", hex(value))
    if depth > _TOO_DEEP:
        raise Unkeyable("it is nested too deep, or holds itself")
    form = _whole(value, kind, depth + 1, kinds)
    if depth == _DEEPEST:  # below, nobody reads the fields of a key any more
        return ("digest", blake3(_encode(form)).digest())
    return form


def _text(value: str) -> FieldValue:
    if value.isascii() and len(value) <= _INLINE:
        return value
    raw = value.encode("utf-8", "surrogatepass")
    if len(raw) > _INLINE:
        return ("str", digest_of(raw))
    try:
        raw.decode()
    except UnicodeDecodeError:
        return ("str", raw)
    return value


def _whole(value: Any, kind: type, depth: int, kinds: set[type]) -> FieldValue:
    parts = _parts.get(kind)
    if parts is not None:
        return (_name(kind), _inside(parts(value), "", depth, kinds))
    if kind in (list, tuple):
        return (kind.__name__, *_items(value, depth, kinds))
    if kind is dict:
        return ("dict", *_pairs(value.items(), depth, kinds))
    if kind in (set, frozenset):
        return (kind.__name__, *sorted(_items(value, depth, kinds), key=_encode))
    fields = _fields(value, kind)
    if fields is None:
        raise Unkeyable(
            f"a {_name(kind)} has no known form",
            hint=f"say what it is made of: trivet.values.register({kind.__name__}, ...)",
        )
    if kind.__module__ not in _PACKAGES_OF_DATA:
        kinds.add(kind)
    return (_name(kind), *_pairs(fields, depth, kinds))


def _fields(value: Any, kind: type) -> Iterable[tuple[object, object]] | None:
    """Names and values of what declares its fields itself; None for other things."""
    if isinstance(value, enum.Enum):
        return [("name", value.name), ("value", value.value)]
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return list(zip(kind._fields, value, strict=True))
    if isinstance(value, msgspec.Struct):
        return [(name, getattr(value, name)) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value):
        # Also what was set besides the fields: a method may read it.
        more = sorted(getattr(value, "__dict__", {}).items())
        names = [each.name for each in dataclasses.fields(value)]
        return [*((name, getattr(value, name)) for name in names),
                *((name, each) for name, each in more if name not in names)]  # fmt: skip
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return [
            *value.__dict__.items(),
            ("(extra)", value.__pydantic_extra__ or {}),
            ("(private)", value.__pydantic_private__ or {}),
        ]
    return _numbers(value, kind)


def _numbers(value: Any, kind: type) -> Iterable[tuple[object, object]] | None:
    """Arrays and tensors, whose packages are looked for where somebody else has imported them."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and (
        kind in (numpy.ndarray, numpy.memmap) or isinstance(value, numpy.generic)
    ):
        return _array(value, numpy)
    torch: Any = sys.modules.get("torch")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        from trivet.values.adapters.torch import parts

        return parts(value)
    return None


def _array(value: Any, numpy: Any) -> Iterable[tuple[object, object]]:
    if value.dtype.hasobject or value.dtype.kind == "V":  # objects, or bytes between the fields
        raise Unkeyable(f"an array of {value.dtype} has no fixed bytes")
    flat = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8)
    return [("dtype", value.dtype.str), ("shape", value.shape), ("data", digest_of(flat.data))]


def _items(values: Iterable[object], depth: int, kinds: set[type]) -> list[FieldValue]:
    return [_inside(each, f"[{n}]", depth, kinds) for n, each in enumerate(values)]


def _pairs(
    pairs: Iterable[tuple[object, object]], depth: int, kinds: set[type]
) -> list[FieldValue]:
    return [
        form
        for name, each in pairs
        for form in (_inside(name, "", depth, kinds), _inside(each, f"[{name!r}]", depth, kinds))
    ]


def _inside(value: object, place: str, depth: int, kinds: set[type]) -> FieldValue:
    try:
        return _form(value, depth, kinds)
    except Unkeyable as error:
        error.place = place + error.place
        raise


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _moment(value: Any) -> object:
    zone = value.tzinfo
    return (value.isoformat(), value.fold, None if zone is None else (_name(type(zone)), str(zone)))


_parts: dict[type, Parts] = {
    complex: lambda value: (value.real, value.imag),
    bytearray: bytes,
    memoryview: lambda value: (value.format, value.shape, value.tobytes()),
    range: lambda value: (value.start, value.stop, value.step),
    slice: lambda value: (value.start, value.stop, value.step),
    datetime.datetime: _moment,
    datetime.time: _moment,
    datetime.date: lambda value: value.isoformat(),
    datetime.timedelta: lambda value: (value.days, value.seconds, value.microseconds),
    decimal.Decimal: str,
    fractions.Fraction: lambda value: (value.numerator, value.denominator),
    uuid.UUID: lambda value: value.bytes,
    Fingerprint: bytes,
    pathlib.PosixPath: str,
    pathlib.PurePosixPath: str,
    pathlib.PureWindowsPath: str,
    type(...): lambda _: None,
}
