"""What a code object refers to outside itself, read off its bytecode."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import NamedTuple

_LOADS = frozenset(
    {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS",
     "LOAD_FROM_DICT_OR_DEREF"}
)  # fmt: skip
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NOTHING = frozenset({"PUSH_NULL", "CACHE", "PRECALL", "EXTENDED_ARG", "NOP"})


class Reference(NamedTuple):
    """A name, and the attributes that are read of it one after the other."""

    name: str
    attributes: tuple[str, ...]


def references(code: types.CodeType) -> set[Reference]:
    """Globals and captured variables that ``code`` reads, nested functions included.

    What it reads in other ways, by ``getattr`` with a computed name or ``eval``, can't be seen.
    """
    found = set(_chains(code))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= references(constant)
    own = {*code.co_varnames, *code.co_cellvars}
    return {each for each in found if each.name not in own}


def imports(code: types.CodeType) -> set[str]:
    """Names of the modules that ``code`` imports, nested functions included; an empty name for
    those that it imports from its own package."""
    found: set[str] = set()
    constants: list[object] = []
    for each in dis.get_instructions(code):
        if each.opname == "IMPORT_NAME":  # after the level and the names
            found.add("" if constants[-2] else str(each.argval))
        elif each.opname.startswith("LOAD_CONST") or each.opname == "LOAD_SMALL_INT":
            constants.append(each.argval)
    return found.union(
        *(imports(each) for each in code.co_consts if isinstance(each, types.CodeType))
    )


def _chains(code: types.CodeType) -> Iterator[Reference]:
    name = ""
    path: tuple[str, ...] = ()
    for each in dis.get_instructions(code):
        if name and each.opname in _ATTRIBUTES:
            path = (*path, str(each.argval))
        elif each.opname not in _NOTHING:
            if name:
                yield Reference(name, path)
            name, path = (str(each.argval), ()) if each.opname in _LOADS else ("", ())
    if name:
        yield Reference(name, path)
