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
import inspect
import os
import pathlib
import re
import sys
import types
import typing
import uuid
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from blake3 import blake3

from trivet.entries.encoding import encode
from trivet.errors import Unkeyable
from trivet.keys import FieldValue, Fingerprint
from trivet.values.packages import module_of

T = TypeVar("T")
Parts = Callable[[Any], object]
Code = Callable[[Any], FieldValue]

_INLINE = 256  # bytes of content that a key holds itself, so that people see what differs
_PARALLEL = 1 << 20  # bytes from which hashing with all cores pays
_DEEPEST = 10  # levels that a key holds itself
_TOO_DEEP = 100  # a value inside itself, or as good as that
_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 64) - 1  # what a key holds
_WITH_CONTENT = (dict, list, set, frozenset, str, bytes, bytearray, int, float, complex)
_AS_THEY_ARE = frozenset({type(None), bool, float, bytes})


def _after_fork() -> None:
    global _most_threads
    _most_threads = 1


_most_threads = blake3.AUTO
# The hash's pool of threads isn't there in a forked child, which would wait for it for ever.
os.register_at_fork(after_in_child=_after_fork)


def register(kind: type[T], parts: Callable[[T], object]) -> None:
    """Say what values of type ``kind`` are made of, so that they may be arguments.

    ``parts`` returns everything that a function could see of the value, as values that have a form
    themselves: a tuple of fields, a dict, a digest as bytes. It holds for the type itself and not
    for subclasses, which may have more to them. Registering again replaces.
    """
    _parts[kind] = parts
    _registered.add(kind)


def form_of(value: object, code: Code | None = None) -> FieldValue:
    """The form of ``value``, for a key.

    ``code`` tells what a function or class does that is met in ``value``. Without it the code of
    classes is left out, and functions have no form.

    Raises `Unkeyable` for a type that nobody registered; the message says where in the value.
    """
    try:
        return _form(value, 0, code or _no_code)
    except RecursionError:
        raise Unkeyable("it is nested too deep, or holds itself") from None
    except RuntimeError as error:
        if "changed" not in str(error):  # as dicts and sets say when they grow meanwhile
            raise
        raise Unkeyable(f"another thread has changed it meanwhile: {error}") from None


def _no_code(thing: object) -> FieldValue:
    if isinstance(thing, type):
        return None
    raise Unkeyable("a function has no form without its code")


def digest_of(content: bytes | bytearray | memoryview) -> bytes:
    """Bytes that stand for ``content``: itself where it is short, else its BLAKE3 digest."""
    view = memoryview(content)
    if view.nbytes <= _INLINE:
        return view.tobytes()
    threads = _most_threads if view.nbytes >= _PARALLEL else 1
    return Fingerprint(blake3(view, max_threads=threads).digest())


def _form(value: Any, depth: int, code: Code) -> FieldValue:
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
    form = _whole(value, kind, depth + 1, code)
    if depth == _DEEPEST:  # below, nobody reads the fields of a key any more
        return ("digest", blake3(encode(form)).digest())
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


def _whole(value: Any, kind: type, depth: int, code: Code) -> FieldValue:
    parts = _parts.get(kind)
    if parts is not None:
        does = (code(kind),) if kind in _registered else ()
        return (_name(kind), *does, _inside(parts(value), "", depth, code))
    if kind in (list, tuple):
        return (kind.__name__, *_items(value, depth, code))
    if kind is dict:
        return ("dict", *_pairs(value.items(), depth, code))
    if kind in (set, frozenset):
        return (kind.__name__, *sorted(_items(value, depth, code), key=encode))
    if kind in (types.FunctionType, types.BuiltinFunctionType):
        return _function(value, code)
    if isinstance(value, type):
        return ("class", _name(value), code(value))
    numbers = _numbers(value, kind, depth, code)
    if numbers is not None:
        return numbers
    fields = _fields(value, kind)
    if fields is None and typing.get_origin(value) is not None:
        whole = (typing.get_origin(value), typing.get_args(value))
        return ("type", *_items(whole, depth, code))
    if fields is None and kind.__module__ == "typing":
        return ("type", repr(value))
    if fields is None:
        raise Unkeyable(
            f"a {_name(kind)} has no known form",
            hint=f"say what it is made of: trivet.values.register({kind.__name__}, ...)",
        )
    return (_name(kind), code(kind), *_pairs(fields, depth, code))


def _function(value: Any, code: Code) -> FieldValue:
    bound = getattr(value, "__self__", None)  # of a built-in function its module
    if bound is not None and not isinstance(bound, types.ModuleType):
        raise Unkeyable(f"a method of a {_name(type(bound))} has no known form")
    return ("function", _name(value), code(value))


def _fields(value: Any, kind: type) -> Iterable[tuple[object, object]] | None:
    """Names and values of what declares its fields itself; None for other things."""
    if isinstance(value, enum.Enum):
        return [("name", value.name), ("value", value.value)]
    names: Iterable[str] | None = None
    if isinstance(value, tuple):
        names = getattr(kind, "_fields", None)
    elif isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    elif dataclasses.is_dataclass(value) and not isinstance(value, _WITH_CONTENT):
        names = [each.name for each in dataclasses.fields(value)]
    if names is not None:
        return _state(value, names)
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return [
            *value.__dict__.items(),
            ("(extra)", value.__pydantic_extra__ or {}),
            ("(private)", value.__pydantic_private__ or {}),
            ("(set)", value.__pydantic_fields_set__),
        ]
    return None


def _state(value: Any, names: Iterable[str]) -> Iterable[tuple[object, object]]:
    """Fields, and what was set besides, in slots too: a method may read it."""
    state = object.__getstate__(value)
    parts = state if isinstance(state, tuple) else (state,)
    besides = {name: each for part in parts for name, each in (part or {}).items()}
    yield from ((name, getattr(value, name)) for name in names if hasattr(value, name))
    yield from ((name, besides[name]) for name in sorted(besides.keys() - {*names}))
    if isinstance(value, tuple):
        yield "(items)", tuple.__getitem__(value, slice(None))


def _numbers(value: Any, kind: type, depth: int, code: Code) -> FieldValue | None:
    """Of packages that are looked for where somebody else has imported them; else None."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and (
        kind in (numpy.ndarray, numpy.memmap) or isinstance(value, numpy.generic)
    ):
        return (_name(kind), code(kind), *_pairs(_array(value, numpy), depth, code))
    if numpy is not None and isinstance(value, numpy.dtype):
        return ("numpy.dtype", repr(value))
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(value, torch.nn.Module):
        from trivet.values.adapters import modules

        def make(code: Code) -> FieldValue:
            return (_name(kind), code(kind), *_pairs(modules.module_parts(value), depth, code))

        return modules.remembered(value, code, make)
    from trivet.values.adapters.torch import parts_of

    parts = parts_of(value, kind)
    return None if parts is None else (_name(kind), code(kind), *_pairs(parts, depth, code))


def _array(value: Any, numpy: Any) -> Iterable[tuple[object, object]]:
    if value.dtype.hasobject or value.dtype.kind == "V":  # objects, or bytes between the fields
        raise Unkeyable(f"an array of {value.dtype} has no fixed bytes")
    flat = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8)
    dtype = value.dtype.str
    if value.dtype.isbuiltin == 2:  # of a package, which may call several types by one letter
        dtype += f" {_name(value.dtype.type)}"
    return [("dtype", dtype), ("shape", value.shape), ("data", digest_of(flat.data))]


def _items(values: Iterable[object], depth: int, code: Code) -> list[FieldValue]:
    return [_inside(each, f"[{n}]", depth, code) for n, each in enumerate(values)]


def _pairs(pairs: Iterable[tuple[object, object]], depth: int, code: Code) -> list[FieldValue]:
    return [
        form
        for name, each in pairs
        for form in (_inside(name, "", depth, code), _inside(each, f"[{name!r}]", depth, code))
    ]


def _inside(value: object, place: str, depth: int, code: Code) -> FieldValue:
    try:
        return _form(value, depth, code)
    except Unkeyable as error:
        error.place = place + error.place
        raise


def _name(kind: Any) -> str:
    return f"{module_of(kind)}.{kind.__qualname__}"


def _moment(value: Any) -> object:
    zone = value.tzinfo
    return (value.isoformat(), value.fold, None if zone is None else (_name(type(zone)), str(zone)))


@dataclasses.dataclass
class _Factory:
    x: list[int] = dataclasses.field(default_factory=list)


_registered: set[type] = set()  # whose methods count, unlike those of Python's own
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
    re.Pattern: lambda value: (value.pattern, value.flags),
    pathlib.PosixPath: str,
    pathlib.PurePosixPath: str,
    pathlib.PureWindowsPath: str,
    type(...): lambda _: None,
    type(dataclasses.MISSING): lambda _: None,
    # What stands for "call the factory" among the defaults that data classes write.
    inspect.signature(_Factory).parameters["x"].default.__class__: lambda _: None,
}
