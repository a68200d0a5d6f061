"""Which files the operators of this process take their code from; a part of `trivet_exec_hook`.

PyTorch's caches know an operator by its name and schema, and know nothing of lowerings and
decompositions that a program adds. What counts is the file of each function that is registered and
is not PyTorch's; each of the program's modules that registers something, by its text; and of the
program's modules all that these may take something from: those of which they hold something, and
those that their text names. Rather too many than too few.
"""

from __future__ import annotations

import enum
import functools
import gc
import inspect
import itertools
import re
import sys
import types
import weakref

from trivet_exec_code import (
    file_of,
    home_of,
    is_known,
    is_known_module,
    is_plain,
    is_program,
    reached,
    read,
)
from trivet_exec_loaded import is_own
from trivet_exec_once import noted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_TABLES = (
    ("torch._inductor.lowering", "lowerings"),
    ("torch._inductor.lowering", "user_lowerings"),
    ("torch._inductor.decomposition", "decompositions"),
    ("torch._decomp.decompositions_for_rng", "extra_random_decomps"),
)
_DISPATCHING = (("torch", "Tensor"), ("torch.utils._python_dispatch", "TorchDispatchMode"))
# What a module says that registers something: it decides what, also where the code is elsewhere.
_REGISTERS = re.compile(
    r"\b(custom_op|triton_op|Library|impl_abstract|lowerings|decompositions"
    r"|register_(fake|autograd|kernel|vmap|torch_dispatch|lowering|decomposition|backend))\b|\.impl\("
)
_FROM = re.compile(r"\bfrom\s+([.\w]+)\s+import\s*(\([^)]*\)|[^\n;]*)")
# What is made of these alone is PyTorch's for good, if it was: nothing in them is replaced.
_FIXED = (
    *(types.FunctionType, type, tuple, staticmethod, classmethod),
    *(enum.Enum, functools.partial, inspect.Signature),
)
_COMMENT = re.compile(r"#.*")
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*(?:\.\w+)*")

_judged: dict[int, tuple[Any, bool, bool]] = {}  # place to itself, if it counts, if that may change
_looked_at: dict[str, tuple[list[Any], list[Any]]] = {}  # table to its values, and those that count
_texts: dict[str, tuple[list[tuple[str, str]], set[str]]] = {}  # file to what `_text_of` finds
_modules: dict[str, int] = {}  # all that were looked at, by name, and their places
_own: dict[str, Any] = {}  # those of the program by name
_marks: list[int] = []  # the places of all that was registered
_roots: list[Any] = []  # weak references to what of that counts
_found: set[str] = set()  # also of operators that are gone: something was compiled with them
_unknown = ""


def note(function: Any) -> None:
    """Take ``function`` for one that implements something: no registry of Python holds it."""
    if not is_plain(function):
        noted.append(_weak(function))


def add(files: set[str]) -> None:
    """Take these for files that implement something."""
    _found.update(files)


def look_anew() -> None:
    """Look at everything the next time: what is in its place may be made of something else."""
    changing = [place for place, (_, _, may_change) in _judged.items() if may_change]
    if any(_judged[place][0]() is None for place in changing):
        _judged.clear()  # what was found with it is to be found with another
    for place in changing:
        _judged.pop(place, None)
    _marks.clear()
    _looked_at.clear()
    _modules.clear()


def unknown() -> str:
    """Why it can't be told what implements operators, or could not; empty where it can."""
    return _unknown


def found_files() -> set[str]:
    """The files that were found so far."""
    return set(_found)


def operator_files() -> set[str]:
    """The files; looked for again only when there are more modules, or other operators."""
    global _marks, _roots
    registered = [*_registered()]
    marks = [*map(id, registered)]
    if marks != _marks:
        counting = _counting(registered)
        if [*map(id, counting)] != [id(each()) for each in _roots]:
            _modules.clear()
        _marks, _roots = marks, [*map(_weak, counting)]
    added = _added()
    if (_roots or added) and _has_grown():
        roots = [*filter(None, [each() for each in _roots]), *added]
        _found.update(_files([*roots, *_registering()]))
    return found_files()


# -- what is registered ----------------------------------------------------------------------------


def _registered() -> Iterator[Any]:
    yield from filter(None, [each() for each in noted])
    definitions = sys.modules.get("torch._library.custom_ops")
    for operator in list(getattr(definitions, "OPDEFS", {}).values()):
        for value in list(vars(operator).values()):
            yield from list(value.values()) if isinstance(value, dict) else (value,)
    registry = getattr(sys.modules.get("torch._library.simple_registry"), "singleton", None)
    for entry in list(getattr(registry, "_data", {}).values()):
        yield from list(getattr(getattr(entry, "fake_impl", None), "kernels", ()))
        yield from list(getattr(getattr(entry, "torch_dispatch_rules", None), "_data", {}).values())
    for module, name in _DISPATCHING:
        base = getattr(sys.modules.get(module), name, None)
        yield from _dispatching(base) if isinstance(base, type) else ()


def _dispatching(base: type) -> Iterator[Any]:
    """What tensors and modes of a program's own make of each operator: PyTorch traces it, and knows
    the kind of an input by its parts alone."""
    kinds: list[type] = type.__subclasses__(base)
    for kind in kinds:
        if "__torch_dispatch__" in vars(kind):
            yield vars(kind)["__torch_dispatch__"]
        yield from _dispatching(kind)


def _added() -> list[Any]:
    """What is not PyTorch's in its tables, which have thousands of lines and seldom a new one."""
    tables = [(name, getattr(sys.modules.get(module), name, {})) for module, name in _TABLES]
    more = getattr(sys.modules.get("torch._decomp"), "global_decomposition_table", {})
    found = []
    for name, table in [*tables, *more.items()]:
        functions = list(table.values())
        if name not in _looked_at or _looked_at[name][0] != functions:
            _looked_at[name] = functions, _counting(functions)
            _modules.clear()
        found += _looked_at[name][1]
    return found


def _counting(values: list[Any]) -> list[Any]:
    """Those to which there is more than PyTorch; each is judged once."""
    seen: dict[int, Any] = {}  # by all: what two are made of is found with the first
    collects = gc.isenabled()
    gc.disable()  # it would go through all of PyTorch again and again, for nothing: this makes none
    try:
        return [each for each in values if _judge(each, seen)]
    finally:
        if collects:
            gc.enable()


def _judge(value: Any, seen: dict[int, Any]) -> bool:
    known = _judged.get(id(value))
    if known is None or known[0]() is not value:
        before = len(seen)
        counts = not is_plain(value) and any(map(_is_other, reached([value], seen)))
        made_of = itertools.islice(reversed(seen.values()), len(seen) - before)
        may_change = counts or not all(issubclass(type(each), _FIXED) for each in made_of)
        known = _judged[id(value)] = _weak(value), counts, may_change
    return known[1]


def _registering() -> Iterator[Any]:
    """The program's modules that register something."""
    for module in [*_own.values(), sys.modules.get("__main__")]:
        path = file_of(home_of(module).get("__file__"))
        if path is not None and is_own(path) and _REGISTERS.search(read(path)):
            yield module


def _is_other(code: Any) -> bool:
    """Whether it is a function that neither PyTorch nor Python brings, or the program's own."""
    if type(code) is types.FunctionType:
        return not is_known(code)
    return is_program(code)


def _weak(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


# -- in which files that is ------------------------------------------------------------------------


def _files(roots: list[Any]) -> set[str]:
    """Files of all functions that ``roots`` are made of, and of the program's modules that these
    may take something from, and so on."""
    global _unknown
    files: set[str] = set()
    homes: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    direct = True
    while roots:
        more: list[Any] = []
        for code in list(reached(roots, seen)):
            home = home_of(code)
            paths = [file_of(home.get("__file__"))]
            if type(code) is types.FunctionType:
                paths.append(file_of(code.__code__.co_filename))
                if direct and not is_known(code):
                    files.update(filter(None, paths))
                    if not any(paths):
                        _unknown = f"operators are implemented by {code.__qualname__}, in no file"
            own = {path for path in paths if path and is_own(path)}
            if own and id(home) not in homes:
                homes[id(home)] = home
                more += [*_held(home), *_named(home, own)]
            files |= own
        roots, direct = more, False
    return files


def _held(home: dict[str, Any]) -> list[Any]:
    """What a module holds, but for modules below it: it holds all of these that are loaded."""
    below = f"{home.get('__name__')}."
    return [
        each
        for each in list(home.values())
        if not (
            issubclass(type(each), types.ModuleType)
            and str(home_of(each).get("__name__")).startswith(below)
        )
    ]


def _has_grown() -> bool:
    """Whether there are more of the program's modules than at the last look, or others."""
    if sys.modules.keys() == _modules.keys():
        return False
    before, is_new = dict(_own), not _modules
    for name, module in list(sys.modules.items()):
        if _modules.get(name) != id(module):
            _modules[name] = id(module)
            if not is_known_module(name) and name != "__main__" and is_program(module):
                _own[name] = module
    for name in _modules.keys() - sys.modules.keys():
        del _modules[name]
    return is_new or _own != before


def _named(home: dict[str, Any], files: set[str]) -> list[Any]:
    """The program's modules that the text of a module may import, wherever in it."""
    found = set()
    for taken, names in map(_text_of, files):
        for base, name in taken:
            package = _absolute(base, home)
            found.add(inner if (inner := f"{package}.{name}") in _own else package)
        found |= names
    return [*filter(None, map(_owner, found))]


def _owner(name: str) -> Any:
    """The program's module of this dotted name, or that it is in."""
    while name not in _own and "." in name:
        name = name.rpartition(".")[0]
    return _own.get(name)


def _absolute(name: str, home: dict[str, Any]) -> str:
    """What a module calls ``name``, which may begin with dots."""
    inner = name.lstrip(".")
    above = len(name) - len(inner)
    if not above:
        return name
    here = str(home.get("__name__", "")).split(".")
    levels = len(here) - above + ("__path__" in home)  # a package is its own parent
    return ".".join([*here[: max(levels, 0)], *filter(None, [inner])])


def _text_of(path: str) -> tuple[list[tuple[str, str]], set[str]]:
    """From where a file takes which names, and all names in it besides, with dots."""
    if path not in _texts:
        text = read(path).replace("\\\n", " ")
        taken = [
            (base, (name.split() or [""])[0])
            for base, names in _FROM.findall(text)
            for name in _COMMENT.sub("", names).strip("() ").split(",")
        ]
        _texts[path] = taken, {*_NAME.findall(_FROM.sub(" ", text))}
    return _texts[path]
