"""What code is made of, and where it lies; a part of `trivet_exec_hook`."""

from __future__ import annotations

import functools
import os
import sys
import types

from trivet_exec_loaded import is_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_KNOWN = {"torch", "trivet", *getattr(sys, "stdlib_module_names", ())}
_PLAIN = {
    *(bool, int, float, complex, str, bytes, type(None), type(Ellipsis)),
    *(types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType),
}
_MADE_BY_CODE = 1 << 9  # flag of a class that is no static part of a library in C
_MANY = 1000  # of a container; longer ones hold data


def reached(roots: Iterable[Any], seen: dict[int, Any]) -> Iterator[Any]:
    """Functions, classes and modules that ``roots`` are made of, through wrappers and closures."""
    rest = [(each, True) for each in roots]
    while rest:
        value, is_near = rest.pop()
        kind = type(value)
        # Names of operators are all over, hold a lot, and nothing of a program.
        if kind in _PLAIN or kind.__module__ == "torch._ops" or id(value) in seen:
            continue
        seen[id(value)] = value  # held, so that its place is not taken by another
        if kind is types.FunctionType or issubclass(kind, (type, types.ModuleType)):
            yield value
            rest += ((each, True) for each in _inside_code(value))
        elif issubclass(kind, dict):
            rest += ((each, is_near) for each in list(dict.values(value))[:_MANY])
        elif kind in (list, tuple, set, frozenset):
            rest += ((each, is_near) for each in list(value)[:_MANY])
        elif is_near or is_program(kind):
            # Of what others have made only what it holds itself, not all that this leads to.
            rest += ((each, is_program(kind)) for each in (kind, *_inside_object(value)))


def _inside_code(value: Any) -> list[Any]:
    if type(value) is types.FunctionType:
        inner = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        for cell in value.__closure__ or ():
            try:
                inner.append(cell.cell_contents)
            except ValueError:
                continue  # not filled yet
        return [*inner, *vars(value).values()]
    if not isinstance(value, type) or not value.__flags__ & _MADE_BY_CODE:
        return []
    if home_of(value).get(value.__name__) is value:
        return []  # its module is reached by its name
    return [*vars(value).values(), *value.__bases__]


def _inside_object(value: Any) -> list[Any]:
    kind = type(value)
    if kind is functools.partial:
        return [value.func, *value.args, *value.keywords.values()]
    if kind in (types.MethodType, staticmethod, classmethod):
        return [value.__func__, getattr(value, "__self__", None)]
    if kind is property:
        return [value.fget, value.fset]
    try:
        return list(object.__getattribute__(value, "__dict__").values())
    except AttributeError:
        return []


def is_plain(value: Any) -> bool:
    """Whether it is seen at once that there is no more to it than PyTorch; so it is with most."""
    if type(value) is not types.FunctionType:
        return type(value) in _PLAIN
    return is_known(value) and not _inside_code(value)


def is_known(function: Any) -> bool:
    """Whether PyTorch, Python or the guard brings the function."""
    module = str(function.__globals__.get("__name__"))
    return is_known_module(module) or module.startswith("namedtuple_")


def is_known_module(name: str) -> bool:
    """Whether PyTorch, Python or the guard brings the module of this name."""
    return name.partition(".")[0] in _KNOWN or name.startswith("trivet_exec_")


def home_of(code: Any) -> Any:
    """The names of the module that a function, class or module belongs to."""
    if type(code) is types.FunctionType:
        return code.__globals__
    module = sys.modules.get(str(code.__module__)) if isinstance(code, type) else code
    # Some load what they stand for when they are asked for anything.
    is_module = issubclass(type(module), types.ModuleType)
    return object.__getattribute__(module, "__dict__") if is_module else {}


def is_program(code: Any) -> bool:
    """Whether a class or module is the program's own."""
    path = home_of(code).get("__file__")
    return isinstance(path, str) and _is_own_file(path)


@functools.cache
def _is_own_file(path: str) -> bool:
    return is_own(os.path.abspath(path))


def file_of(path: Any) -> str | None:
    """The file of this name, or the archive that it is in."""
    return _on_disk(path) if isinstance(path, str) else None


@functools.cache
def _on_disk(path: str) -> str | None:
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path if os.path.isfile(path) else None


@functools.cache
def read(path: str) -> str:
    """The text of a module; empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return "" if path.endswith(".so") else file.read()
    except OSError:
        return ""
