"""What a function computes with besides its arguments: its code, and all that the code refers to.

The code is that of the running function and not its source file, which may have been edited since.
Functions and classes of the same program are followed, so that an edit in a helper counts; packages
count by their release. What the code refers to and no key can hold is an error, not a risk.
"""

from __future__ import annotations

import functools
import logging
import types
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from blake3 import blake3

from trivet.errors import Unkeyable
from trivet.values.forms import form_of
from trivet.values.packages import PYTHON, is_own, release
from trivet.values.references import references

_MISSING = object()
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_HARMLESS = (logging.Logger, types.BuiltinFunctionType)
# These can change without becoming another object.
_CHANGEABLE = (list, dict, set, bytearray)
_OF_EVERY_CLASS = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__",
     "__static_attributes__", "__abstractmethods__", "_abc_impl"}
)  # fmt: skip
_Look = Callable[[], object]


class Identity:
    """The digest of a function, found when it is first called.

    It is found anew when a name that the code refers to leads to another object, or a function was
    given other code, as happens in notebooks.

    Args:
        function: whose code it is.
        declared: objects that are in the key anyway; nothing more is asked of them.
        ignored: names that can't change a result.
    """

    def __init__(
        self, function: types.FunctionType, declared: tuple[object, ...], ignored: frozenset[str]
    ) -> None:
        self._function = function
        self._declared = declared
        self._ignored = ignored
        self._seen: list[tuple[_Look, object]] = []
        self._digest = b""

    def digest(self) -> bytes:
        """32 bytes. Raises `Unkeyable`."""
        for look, found in self._seen:
            if look() is not found:
                self._digest = b""
                break
        if not self._digest:
            walk = _Walk(self._declared, self._ignored)
            self._digest = blake3(_encode([PYTHON, walk.function(self._function)])).digest()
            self._seen = walk.seen
        return self._digest


class _Walk:
    """Visits all that a function refers to, each thing once."""

    def __init__(self, declared: tuple[object, ...], ignored: frozenset[str]) -> None:
        self._declared = declared
        self._ignored = ignored
        self._numbers: dict[int, int] = {}
        self.seen: list[tuple[_Look, object]] = []

    def function(self, function: types.FunctionType) -> list[object]:
        self._numbers[id(function)] = len(self._numbers)
        code, who = function.__code__, f"{function.__qualname__}()"
        self._watch(lambda: function.__code__)
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        parts: list[object] = [
            function.__module__,
            function.__qualname__,
            _code(code),
            self._form(function.__defaults__, f"{who} has a default"),
            self._form(function.__kwdefaults__, f"{who} has a default"),
        ]
        for name, attributes in sorted(references(code)):
            if name in self._ignored:
                continue
            if name in cells:
                found = self._watch(functools.partial(_content, cells[name]))
            else:
                found = self._watch(functools.partial(function.__globals__.get, name, _MISSING))
            for each in attributes:
                if isinstance(found, types.ModuleType):
                    found = self._watch(functools.partial(getattr, found, each, _MISSING))
            if found is not _MISSING:  # else a builtin, or an error when it comes to that
                path = ".".join((name, *attributes))
                parts.append((path, self._thing(found, f"{who} refers to {path}")))
        return parts

    def _watch(self, look: _Look) -> Any:
        found = look()
        self.seen.append((look, found))
        return found

    def _thing(self, found: Any, how: str) -> object:
        if any(each is found for each in self._declared):
            return "declared"
        while hasattr(found, "__wrapped__") and not isinstance(found, (types.FunctionType, type)):
            found = found.__wrapped__  # of a memo, or of functools.lru_cache
        if id(found) in self._numbers:
            return ("again", self._numbers[id(found)])
        if isinstance(found, types.ModuleType):
            return ("module", found.__name__, release(found.__name__))
        if isinstance(found, (types.FunctionType, type)):
            if not is_own(found.__module__):
                return (found.__module__, found.__qualname__, release(found.__module__))
            return (
                self.function(found)
                if isinstance(found, types.FunctionType)
                else self._class(found)
            )
        if type(found) is functools.partial:
            given = self._form((found.args, found.keywords), how)
            return ["partial", self._thing(found.func, how), given]
        if isinstance(found, _HARMLESS):
            return type(found).__name__
        if isinstance(found, _CHANGEABLE):
            raise Unkeyable(
                f"{how}, a {type(found).__name__}, which can change unseen",
                hint="make it a constant such as a tuple, pass it as an argument, or name it in "
                "depends= or ignore=",
            )
        module = type(found).__module__
        if callable(found) and hasattr(found, "__qualname__") and not is_own(module):
            return (module, found.__qualname__, release(module))  # a ufunc, a compiled function
        return self._form(found, how)

    def _class(self, found: type) -> list[object]:
        self._numbers[id(found)] = len(self._numbers)
        bases = [self._thing(each, f"{found.__qualname__} inherits") for each in found.__bases__]
        parts: list[object] = [found.__module__, found.__qualname__, bases]
        for name, value in sorted(vars(found).items()):
            if name not in _OF_EVERY_CLASS and name not in self._ignored:
                parts.append((name, self._attribute(value, f"{found.__qualname__}.{name}")))
        return parts

    def _attribute(self, value: object, how: str) -> object:
        functions = [self._thing(each, how) for each in _functions(value)]
        if functions:
            return functions
        try:
            return form_of(value)
        except Unkeyable:
            return type(value).__qualname__  # of a slot, an annotation: nothing that computes

    def _form(self, value: object, how: str) -> object:
        try:
            return form_of(value)
        except Unkeyable as error:
            raise Unkeyable(
                f"{how}{error.place}: {error.message}",
                hint="pass it as an argument, or name it in depends= with a registered form, or in "
                "ignore= where it can't change a result",
            ) from None


def _functions(value: object) -> Iterator[types.FunctionType]:
    if isinstance(value, (classmethod, staticmethod)):
        yield from _functions(value.__func__)
    elif isinstance(value, property):
        for each in (value.fget, value.fset):
            yield from _functions(each)
    elif isinstance(value, functools.cached_property):
        yield from _functions(value.func)
    elif isinstance(value, types.FunctionType):
        yield value


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _code(code: types.CodeType) -> list[object]:
    """What a code object does, without where it stands."""
    constants = [
        _code(each) if isinstance(each, types.CodeType) else form_of(each)
        for each in code.co_consts
    ]
    names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    return [code.co_name, code.co_code, code.co_exceptiontable, constants, names, counts]
