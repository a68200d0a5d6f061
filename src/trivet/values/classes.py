"""What a class declares that stands in none of its attributes' code: types and defaults of fields.

Libraries compile them into validators and decoders, which can't be looked into.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

_Declared = Iterator[tuple[str, object]]
_OF_A_FIELD = ("default", "default_factory", "init", "compare", "hash", "kw_only", "metadata")
_OF_A_STRUCT = ("array_like", "omit_defaults", "forbid_unknown_fields", "tag", "tag_field")
_NO_DEFAULT = frozenset({"_MISSING_TYPE", "PydanticUndefinedType", "NoDefaultType"})


def declared_by(kind: type) -> _Declared:
    """Names and values of what the fields of ``kind`` are given besides their types."""
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(kind, pydantic.BaseModel):
        yield from _of_pydantic(kind)
    elif issubclass(kind, msgspec.Struct):
        yield from _of_msgspec(kind)
    elif dataclasses.is_dataclass(kind):
        for each in dataclasses.fields(kind):
            yield each.name, _open({name: getattr(each, name) for name in _OF_A_FIELD})


def types_of(kind: type) -> _Declared:
    """Names and types of fields, where something may go by them when the program runs."""
    is_typed = hasattr(kind, "__total__") or hasattr(kind, "_fields")  # TypedDict, NamedTuple
    if is_typed or any(True for _ in declared_by(kind)):
        yield from vars(kind).get("__annotations__", {}).items()


def _of_pydantic(kind: Any) -> _Declared:
    for name, each in kind.__pydantic_fields__.items():
        told = [slot for slot in type(each).__slots__ if not slot.startswith("_")]
        yield name, _open({slot: getattr(each, slot) for slot in told if slot != "annotation"})
    for name, each in kind.__private_attributes__.items():
        yield name, _open((each.default, each.default_factory))


def _of_msgspec(kind: Any) -> _Declared:
    config = kind.__struct_config__
    yield "configuration", tuple((name, getattr(config, name)) for name in _OF_A_STRUCT)
    yield "names", kind.__struct_encode_fields__
    defaults = (getattr(each, "factory", each) for each in kind.__struct_defaults__)
    yield "defaults", _open(tuple(defaults))


def _open(value: Any) -> object:
    """``value`` with the inside of what only libraries have made."""
    kind = type(value)
    if kind.__name__ in _NO_DEFAULT:
        return kind.__name__
    if kind in (list, tuple):
        return tuple(map(_open, value))
    if isinstance(value, (dict, type(type.__dict__))):
        return tuple((name, _open(each)) for name, each in value.items())
    is_inside = kind.__module__.partition(".")[0] == "pydantic" and hasattr(value, "__dict__")
    if is_inside and not isinstance(value, type) and not callable(value):
        return (kind.__qualname__, _open(vars(value)))
    return value
