"""What a function computes with besides its arguments: its code, and all that the code refers to.

The code is that of the running function and not its source file, which may have been edited since.
Functions and classes of the same program are followed, so that an edit in a helper counts; packages
count by their release. What the code refers to and no key can hold is an error, not a risk.
"""

from __future__ import annotations

import enum
import functools
import logging
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
from blake3 import blake3

from trivet.errors import Unkeyable
from trivet.keys import FieldValue
from trivet.values.forms import form_of
from trivet.values.packages import PYTHON, is_own, state_of
from trivet.values.references import imports, references

_MISSING = object()
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_OF_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_UNCHANGING = (type(None), bool, int, float, complex, str, bytes, enum.Enum)
_OF_EVERY_CLASS = frozenset(
    {"__doc__", "__module__", "__annotations__", "__firstlineno__", "_abc_impl"}
)
_Look = Callable[[], object]


class Identity:
    """The digest of a function or class, found when it is first asked for.

    It is found anew when a name that the code refers to leads to another object, when such an
    object has changed, or when a function was given other code, as happens in notebooks.

    Args:
        root: whose code it is.
        declared: objects that are in the key anyway; nothing more is asked of them.
        ignored: names that can't change a result.
    """

    def __init__(
        self,
        root: types.FunctionType | type,
        declared: tuple[object, ...] = (),
        ignored: frozenset[str] = frozenset(),
    ) -> None:
        self._root = root
        self._declared = declared
        self._ignored = ignored
        self._found: tuple[_Walk, bytes] | None = None  # replaced whole: threads read it

    def digest(self) -> bytes:
        """32 bytes. Raises `Unkeyable`."""
        found = self._found
        if found is None or found[0].has_changed():
            walk = _Walk(self._declared, self._ignored)
            found = walk, blake3(_encode([PYTHON, walk.root(self._root)])).digest()
            self._found = found
        return found[1]


class _Walk:
    """Visits all that a function or class refers to, each thing once."""

    def __init__(self, declared: tuple[object, ...], ignored: frozenset[str]) -> None:
        self._declared = declared
        self._ignored = ignored
        self._numbers: dict[int, int] = {}
        self._bound: list[tuple[_Look, object]] = []
        self._equal: list[tuple[_Look, object]] = []

    def has_changed(self) -> bool:
        """Whether anything that was visited leads elsewhere now, or is not what it was."""
        for look, found in self._bound:
            if look() is not found:
                return True
        return any(look() != found for look, found in self._equal)

    def root(self, root: types.FunctionType | type) -> object:
        return self._class(root) if isinstance(root, type) else self._function(root)

    def _function(self, function: types.FunctionType) -> list[object]:
        self._numbers[id(function)] = len(self._numbers)
        code, who = function.__code__, f"{function.__qualname__}()"
        for attribute in ("__code__", "__defaults__"):
            self._watch(functools.partial(getattr, function, attribute))
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        parts: list[object] = [
            function.__module__,
            function.__qualname__,
            _code(code),
            self._form(function.__defaults__, f"{who} has a default"),
            self._form(function.__kwdefaults__, f"{who} has a default"),
        ]
        for module in sorted(imports(code)):
            if module.partition(".")[0] not in self._ignored:
                parts.append(("import", module, self._imported(module, who)))
        for name, attributes, is_captured in sorted(references(code)):
            if name in self._ignored:
                continue
            if is_captured:
                found = self._watch(functools.partial(_content, cells[name]))
            else:
                found = self._watch(functools.partial(function.__globals__.get, name, _MISSING))
            path = name
            for each in attributes:
                if isinstance(found, types.FunctionType) and each in vars(found):
                    parts.append((path, self._thing(found, f"{who} refers to {path}")))
                elif not isinstance(found, types.ModuleType):
                    break
                path += f".{each}"
                found = self._watch(functools.partial(getattr, found, each, _MISSING))
            if found is not _MISSING:  # else a builtin, or an error when it comes to that
                parts.append((path, self._thing(found, f"{who} refers to {path}")))
        return parts

    def _watch(self, look: _Look) -> Any:
        found = look()
        self._bound.append((look, found))  # how it is looked up, and what that led to
        return found

    def _watch_equal(self, look: _Look) -> Any:
        found = look()
        self._equal.append((look, found))
        return found

    def _package(self, module: str) -> object:
        return self._watch_equal(functools.partial(state_of, module))

    def _thing(self, found: Any, how: str) -> object:
        for place, each in enumerate(self._declared):
            if each is found:
                return ("declared", place)
        while hasattr(found, "__wrapped__") and not isinstance(found, (types.FunctionType, type)):
            found = found.__wrapped__  # of a memo, or of functools.lru_cache
        if id(found) in self._numbers:
            return ("again", self._numbers[id(found)])
        if isinstance(found, types.ModuleType):
            return self._module(found, how)
        if isinstance(found, (types.FunctionType, type)):
            if is_own(found.__module__):
                return self.root(found)
            return (found.__module__, found.__qualname__, self._package(found.__module__))
        if type(found) is functools.partial:
            given = self._form((found.args, found.keywords), how)
            return ["partial", self._thing(found.func, how), given]
        if isinstance(found, logging.Logger):
            return "logger"
        if isinstance(found, types.BuiltinFunctionType) and not isinstance(
            found.__self__, types.ModuleType | None
        ):
            return self._form(found, how)
        module = getattr(found, "__module__", None) or type(found).__module__
        if callable(found) and hasattr(found, "__qualname__") and not is_own(module):
            return (module, found.__qualname__, self._package(module))  # a ufunc, a compiled one
        return self._form(found, how)

    def _imported(self, module: str, who: str) -> object:
        if not module or is_own(module):
            raise Unkeyable(
                f"{who} imports {module or 'a neighbour'}, a module of the program, when it runs",
                hint="import it where the function's own module begins, or name it in ignore=",
            )
        return self._package(module)

    def _module(self, found: types.ModuleType, how: str) -> object:
        if is_own(found.__name__):
            raise Unkeyable(
                f"{how}, a module of the program, as a whole",
                hint="refer to what it needs of it, as in module.function",
            )
        return ("module", found.__name__, self._package(found.__name__))

    def _class(self, found: type) -> list[object]:
        self._numbers[id(found)] = len(self._numbers)
        who = found.__qualname__
        bases = [self._thing(each, f"{who} inherits") for each in found.__bases__]
        parts: list[object] = [found.__module__, who, bases]
        if issubclass(found, enum.Enum):
            parts.append([(name, self._form(each.value, who)) for name, each in
                          found.__members__.items()])  # fmt: skip
        for name, value in sorted(vars(found).items()):
            if name not in _OF_EVERY_CLASS and name not in self._ignored:
                self._watch(functools.partial(vars(found).get, name, _MISSING))
                parts.append((name, self._attribute(name, value, f"{who} has {name}")))
        return parts

    def _attribute(self, name: str, value: object, how: str) -> object:
        functions = [self._thing(each, how) for each in _functions(value)]
        if functions or isinstance(value, (*_OF_SLOTS, enum.Enum)):
            return functions
        try:
            return self._thing(value, how)
        except Unkeyable:
            # Python's own, and those that data classes and the like add, follow from the rest.
            if name.startswith("_") and name.endswith("_"):
                return type(value).__qualname__
            raise

    def _form(self, value: object, how: str) -> object:
        try:
            form = form_of(value, lambda thing: cast(FieldValue, self._thing(thing, how)))
        except Unkeyable as error:
            raise Unkeyable(
                f"{how}{error.place}: {error.message}",
                hint="pass it as an argument, or name it in depends= with a registered form, or in "
                "ignore= where it can't change a result",
            ) from None
        if not _is_fixed(value):
            self._watch_equal(functools.partial(form_of, value, id))
        return form


def _functions(value: object) -> Iterator[types.FunctionType]:
    if isinstance(value, types.FunctionType):
        yield value
    elif isinstance(value, property):
        for each in (value.fget, value.fset):
            yield from _functions(each)
    elif isinstance(value, functools.cached_property):
        yield from _functions(value.func)
    elif not isinstance(value, type) and hasattr(value, "__wrapped__"):
        yield from _functions(value.__wrapped__)  # class and static methods, memos


def _is_fixed(value: object) -> bool:
    """Whether a name that is bound to it has its content as long as it is bound to it."""
    if type(value) in (tuple, frozenset):
        return all(map(_is_fixed, value))  # type: ignore[call-overload]
    return isinstance(value, _UNCHANGING)


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
