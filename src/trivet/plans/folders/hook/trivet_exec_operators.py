"""Which files the operators of this process take their code from; a part of `trivet_exec_hook`.

PyTorch's caches know an operator by its name and schema, and know nothing of lowerings and
decompositions that a program adds. What counts is the file of each function that is registered and
is not PyTorch's; each of the program's modules that registers something, by its text; and of the
program's modules all that these may take something from: those of which they hold something, and
those that their text names. Rather too many than too few.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import types
import weakref

from trivet_exec_loaded import is_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

_TABLES = (
    ("torch._inductor.lowering", "lowerings"),
    ("torch._inductor.lowering", "user_lowerings"),
    ("torch._inductor.decomposition", "decompositions"),
    ("torch._decomp.decompositions_for_rng", "extra_random_decomps"),
)
_DISPATCHING = (("torch", "Tensor"), ("torch.utils._python_dispatch", "TorchDispatchMode"))
_KNOWN = {"torch", "trivet", *getattr(sys, "stdlib_module_names", ())}
_GUARD = "trivet_exec_"  # begins the names of this module and its like
_PLAIN = {bool, int, float, complex, str, bytes, type(None), type(Ellipsis)}
_MANY = 1000  # of a container; longer ones hold data
# What a module says that registers something: it decides what, also where the code is elsewhere.
_REGISTERS = re.compile(
    r"\b(custom_op|triton_op|Library|impl_abstract|lowerings|decompositions"
    r"|register_(fake|autograd|kernel|vmap|torch_dispatch|lowering|decomposition|backend))\b|\.impl\("
)
_FROM = re.compile(r"\bfrom\s+([.\w]+)\s+import\s*(\([^)]*\)|[^\n;]*)")
_COMMENT = re.compile(r"#.*")
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*(?:\.\w+)*")

noted: list[Any] = []  # weak references to what `note` was told
_judged: dict[int, tuple[Any, bool]] = {}  # the place of a value to itself, and whether it counts
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
    if not _is_plain(function):
        noted.append(_weak(function))


def share(others: list[Any]) -> None:
    """Take also what was noted, and is still to be, in ``others``."""
    global noted
    others.extend(noted)
    noted = others


def add(files: set[str]) -> None:
    """Take these for files that implement something."""
    _found.update(files)


def look_anew() -> None:
    """Look at everything the next time, not only whether there is something else in its place."""
    _marks.clear()


def unknown() -> str:
    """Why it can't be told what implements operators, or could not; empty where it can."""
    return _unknown


def operator_files() -> set[str]:
    """The files; looked for again only when there are more modules, or other operators."""
    global _marks, _roots
    registered = [*_registered()]
    marks = [*map(id, registered)]
    if marks != _marks:
        counting = [each for each in registered if _counts(each, {})]
        if [*map(id, counting)] != [id(each()) for each in _roots]:
            _modules.clear()
        _marks, _roots = marks, [*map(_weak, counting)]
    added = _added()
    if (_roots or added) and _has_grown():
        roots = [*filter(None, [each() for each in _roots]), *added]
        _found.update(_files([*roots, *_registering()]))
    return set(_found)


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
            seen: dict[int, Any] = {}  # by all: what two are made of is found with the first
            _looked_at[name] = functions, [each for each in functions if _counts(each, seen)]
            _modules.clear()
        found += _looked_at[name][1]
    return found


def _counts(value: Any, seen: dict[int, Any]) -> bool:
    """Whether there is more to it than PyTorch, in what was not ``seen`` before."""
    if _is_plain(value):
        return False
    known = _judged.get(id(value))
    if known is None or known[0]() is not value:
        known = _judged[id(value)] = _weak(value), any(map(_is_other, [*_reached([value], seen)]))
    return known[1]


def _registering() -> Iterator[Any]:
    """The program's modules that register something."""
    for module in [*_own.values(), sys.modules.get("__main__")]:
        path = _file(_home(module).get("__file__"))
        if path is not None and is_own(path) and _REGISTERS.search(_read(path)):
            yield module


def _is_other(code: Any) -> bool:
    """Whether it is a function that neither PyTorch nor Python brings, or the program's own."""
    if type(code) is types.FunctionType:
        return not _is_known(code)
    return _is_program(code)


def _is_plain(value: Any) -> bool:
    """Whether it is seen at once that there is no more to it than PyTorch; so it is with most."""
    if type(value) is not types.FunctionType:
        return type(value) in _PLAIN
    return _is_known(value) and not _inside_code(value)


def _is_known(function: Any) -> bool:
    name = str(function.__globals__.get("__name__"))
    return name.partition(".")[0] in _KNOWN or name.startswith((_GUARD, "namedtuple_"))


def _weak(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


# -- what that is made of --------------------------------------------------------------------------


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
        for code in list(_reached(roots, seen)):
            home = _home(code)
            paths = [_file(home.get("__file__"))]
            if type(code) is types.FunctionType:
                paths.append(_file(code.__code__.co_filename))
                if direct and not _is_known(code):
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


def _reached(roots: Iterable[Any], seen: dict[int, Any]) -> Iterator[Any]:
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
        elif is_near or _is_program(kind):
            # Of what others have made only what it holds itself, not all that this leads to.
            rest += ((each, _is_program(kind)) for each in (kind, *_inside_object(value)))


def _inside_code(value: Any) -> list[Any]:
    if type(value) is types.FunctionType:
        inner = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        for cell in value.__closure__ or ():
            try:
                inner.append(cell.cell_contents)
            except ValueError:
                continue  # not filled yet
        return [*inner, *vars(value).values()]
    if isinstance(value, type) and _home(value).get(value.__name__) is not value:
        return [*vars(value).values(), *value.__bases__]  # made by code, that holds more
    return []


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


# -- where that is ---------------------------------------------------------------------------------


def _home(code: Any) -> Any:
    """The names of the module that a function, class or module belongs to."""
    if type(code) is types.FunctionType:
        return code.__globals__
    module = sys.modules.get(str(code.__module__)) if isinstance(code, type) else code
    # Some load what they stand for when they are asked for anything.
    is_module = issubclass(type(module), types.ModuleType)
    return object.__getattribute__(module, "__dict__") if is_module else {}


def _is_program(code: Any) -> bool:
    """Whether a class or module is the program's own."""
    path = _home(code).get("__file__")
    return isinstance(path, str) and _is_own_file(path)


@functools.cache
def _is_own_file(path: str) -> bool:
    return bool(is_own(os.path.abspath(path)))


def _file(path: Any) -> str | None:
    """The file of this name, or the archive that it is in."""
    return _on_disk(path) if isinstance(path, str) else None


@functools.cache
def _on_disk(path: str) -> str | None:
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path if os.path.isfile(path) else None


def _held(home: dict[str, Any]) -> list[Any]:
    """What a module holds, but for modules below it: it holds all of these that are loaded."""
    below = f"{home.get('__name__')}."
    return [
        each
        for each in list(home.values())
        if not (
            issubclass(type(each), types.ModuleType)
            and str(_home(each).get("__name__")).startswith(below)
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
            is_known = name.partition(".")[0] in _KNOWN or name == "__main__"
            if not (is_known or name.startswith(_GUARD)) and _is_program(module):
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
        text = _read(path).replace("\\\n", " ")
        taken = [
            (base, (name.split() or [""])[0])
            for base, names in _FROM.findall(text)
            for name in _COMMENT.sub("", names).strip("() ").split(",")
        ]
        _texts[path] = taken, {*_NAME.findall(_FROM.sub(" ", text))}
    return _texts[path]


@functools.cache
def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return "" if path.endswith(".so") else file.read()
    except OSError:
        return ""
