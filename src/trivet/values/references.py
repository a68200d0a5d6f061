"""What a code object refers to outside itself, read off its bytecode."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import NamedTuple

from trivet.values.forms import form_of

_OF_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_OF_CELLS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NOTHING = frozenset({"PUSH_NULL", "CACHE", "PRECALL", "EXTENDED_ARG", "NOP"})


class Reference(NamedTuple):
    """A name, the attributes that are read of it one after the other, and whether it is captured
    from a function around, not global."""

    name: str
    attributes: tuple[str, ...]
    is_captured: bool


def references(code: types.CodeType) -> set[Reference]:
    """Globals and captured variables that ``code`` reads, nested functions included.

    What it reads in other ways, by ``getattr`` with a computed name or ``eval``, can't be seen.
    """
    found = set(_chains(code))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= references(constant)
    return {each for each in found if not (each.is_captured and each.name in code.co_cellvars)}


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


def content_of(code: types.CodeType) -> list[object]:
    """What a code object does, without where it stands."""
    constants = [
        content_of(each) if isinstance(each, types.CodeType) else form_of(each)
        for each in code.co_consts
    ]
    names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    return [code.co_name, code.co_code, code.co_exceptiontable, constants, names, counts]


def _chains(code: types.CodeType) -> Iterator[Reference]:
    found: Reference | None = None
    for each in dis.get_instructions(code):
        if found and each.opname in _ATTRIBUTES:
            found = found._replace(attributes=(*found.attributes, str(each.argval)))
        elif each.opname not in _NOTHING:
            if found:
                yield found
            is_captured = each.opname in _OF_CELLS
            is_any = is_captured or each.opname in _OF_GLOBALS
            found = Reference(str(each.argval), (), is_captured) if is_any else None
    if found:
        yield found
