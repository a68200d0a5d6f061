"""The walk over all that a function or class refers to."""

from __future__ import annotations

import builtins
import contextlib
import enum
import functools
import logging
import types
from collections.abc import Iterator
from typing import Any, NewType, TypeVar, cast, get_origin

from trivet.errors import Unkeyable
from trivet.keys import FieldValue
from trivet.values.classes import declared_by, types_of
from trivet.values.forms import form_of
from trivet.values.packages import has_settings, is_brought, is_own, module_of, state_of
from trivet.values.references import content_of, imports, references
from trivet.values.watch import MISSING, Watch

_OF_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_UNCHANGING = (type(None), bool, int, float, complex, str, bytes, enum.Enum, type,
               types.FunctionType, types.GenericAlias, types.UnionType)  # fmt: skip
_OF_EVERY_CLASS = frozenset(
    {"__module__", "__annotations__", "__firstlineno__", "__slotnames__", "_abc_impl",
     "_new_member_"}
)  # fmt: skip


class Wrapper:
    """Calls the function that is its ``__wrapped__``, and adds nothing to what that returns.

    Attributes:
        stated: what its author said that results depend on besides.
        has_tenants: whether results are of one tenant each.
    """

    stated: tuple[object, ...] = ()
    has_tenants = False


_TRANSPARENT = (Wrapper, type(functools.lru_cache(len)))


class Walk:
    """Visits all that a function or class refers to, each thing once.

    Args:
        declared, ignored: as for `Identity`.
        has_tenants: whether results are of one tenant each.

    Attributes:
        watch: whether anything that was visited leads elsewhere now, or is not what it was.
    """

    def __init__(
        self, declared: tuple[object, ...], ignored: frozenset[str], has_tenants: bool = False
    ) -> None:
        self._has_tenants = has_tenants
        self._declared = declared
        self._ignored = ignored
        self._numbers: dict[int, int] = {}
        self._packages: dict[str, object] = {}
        self.watch = Watch()

    def of(self, root: types.FunctionType | type, more: tuple[object, ...]) -> object:
        return [self._root(root), [self._thing(each, "it refers to a function") for each in more]]

    def _root(self, root: types.FunctionType | type) -> object:
        return self._class(root) if isinstance(root, type) else self._function(root)

    def _function(self, function: types.FunctionType) -> list[object]:
        self._numbers[id(function)] = len(self._numbers)
        if isinstance(getattr(function, "registry", None), types.MappingProxyType):
            return self._dispatcher(function)
        if not is_own(function.__module__):
            return self._made_by_package(function)
        code, who = function.__code__, f"{function.__qualname__}()"
        self.watch.attribute(function, "__code__")
        if code.co_argcount:  # else they do nothing, and each costs every hit a hundredth
            self.watch.attribute(function, "__defaults__")
        if code.co_kwonlyargcount:
            self.watch.attribute(function, "__kwdefaults__")
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        parts: list[object] = [
            module_of(function),
            function.__qualname__,
            content_of(code),
            self._form(function.__defaults__, f"{who} has a default"),
            self._form(function.__kwdefaults__, f"{who} has a default"),
        ]
        parts += [("import", each, self._imported(each, who)) for each in sorted(imports(code))
                  if each.partition(".")[0] not in self._ignored]  # fmt: skip
        for name, attributes, is_captured in sorted(references(code)):
            if name not in self._ignored:
                place = cells[name] if is_captured else function.__globals__
                parts += self._referred(self._bound(place, name), name, attributes, who)
        return parts

    def _bound(self, place: types.CellType | dict[str, Any], name: str) -> Any:
        if isinstance(place, types.CellType):
            return self.watch.cell(place)
        found = self.watch.item(place, name)
        if found is MISSING:
            found = self.watch.item(vars(builtins), name)
            if found is NotImplemented or found is Ellipsis:
                return MISSING  # always the same
        return found

    def _referred(
        self, found: Any, path: str, attributes: tuple[str, ...], who: str
    ) -> Iterator[tuple[str, object]]:
        """What ``path`` is bound to, and the attributes of it that a function reads."""
        for each in attributes:
            if isinstance(found, (types.FunctionType, *_TRANSPARENT)):
                if self.watch.item(vars(found), each) is MISSING:
                    break
                yield path, self._thing(found, f"{who} refers to {path}")
            elif not isinstance(found, types.ModuleType):
                break
            path += f".{each}"
            found = self.watch.attribute(found, each)
        if found is not MISSING:  # else an error, when it comes to that
            yield path, self._thing(found, f"{who} refers to {path}")

    def _dispatcher(self, function: Any) -> list[object]:
        """Of `functools.singledispatch`: what it calls stands in no code."""
        self.watch.equal(lambda: tuple(function.registry.items()))
        who = f"{function.__qualname__}()"
        called = sorted(function.registry.items(), key=lambda each: each[0].__qualname__)
        return ["dispatch", *((self._thing(k, who), self._thing(each, who)) for k, each in called)]

    def _made_by_package(self, function: types.FunctionType) -> list[object]:
        """A function that a package made when the program ran, of what it was given for that."""
        who = f"{function.__module__}.{function.__qualname__}()"
        cells = [self.watch.cell(each) for each in function.__closure__ or ()]
        given = [self._thing(each, f"{who} was given something") for each in cells]
        defaults = self._form((function.__defaults__, function.__kwdefaults__), f"{who} has")
        return ["made", who, self._package(function.__module__), given, defaults]

    def _package(self, module: str) -> object:
        top = module.partition(".")[0]
        if not has_settings(top):
            return state_of(module)
        if top not in self._packages:  # asking takes a while, so it is watched once
            self._packages[top] = self.watch.equal(functools.partial(state_of, top))
        return self._packages[top]

    def _thing(self, found: Any, how: str) -> object:
        for place, each in enumerate(self._declared):
            if each is found:
                return ("declared", place)
        if isinstance(found, _TRANSPARENT):
            return self._wrapper(found, how)
        if id(found) in self._numbers:
            return ("again", self._numbers[id(found)])
        if isinstance(found, types.ModuleType):
            return self._module(found, how)
        if isinstance(found, (types.FunctionType, type)):
            if is_brought(found):
                return (found.__module__, found.__qualname__, self._package(found.__module__))
            return self._root(found)
        if isinstance(found, logging.Logger):
            return "logger"
        if get_origin(found) is not None:
            return self._form(found, how)  # such as ``list[int]``, by its arguments
        if isinstance(found, NewType):
            return ["new type", found.__name__, self._thing(found.__supertype__, how)]
        if isinstance(found, TypeVar):
            given = (found.__bound__, found.__constraints__)
            return ["type variable", found.__name__, self._form(given, how)]
        return self._callable(found, how) or self._form(found, how)

    def _wrapper(self, found: Any, how: str) -> object:
        inner = self._thing(found.__wrapped__, how)
        if not isinstance(found, Wrapper):
            return inner
        if found.has_tenants and not self._has_tenants:
            raise Unkeyable(
                f"{how}, whose results are of one tenant each",
                hint="give memo() a tenant= here, too",
            )
        stated = [self._thing(each, how) for each in found.stated]
        return ["stated", inner, stated] if stated else inner

    def _callable(self, found: Any, how: str) -> object | None:
        """Of what calls something else; None for what is known by its content alone."""
        if type(found) is functools.partial:
            given = self._form((found.args, found.keywords), how)
            return ["partial", self._thing(found.func, how), given]
        if isinstance(found, types.MethodType):
            return ["method", self._thing(found.__func__, how), self._thing(found.__self__, how)]
        if isinstance(found, types.MethodWrapperType):
            return ["method", found.__name__, self._thing(found.__self__, how)]
        bound = getattr(found, "__self__", None)  # of a compiled function its module
        if isinstance(found, types.BuiltinFunctionType) and not isinstance(
            bound, types.ModuleType | None
        ):
            return None
        # Cython's functions are of a module that it makes up when the program runs.
        is_cython = type(found).__name__ == "cython_function_or_method"
        if is_own(type(found).__module__) and not is_cython:
            return None
        if type(found).__module__.startswith("torch.jit"):
            raise Unkeyable(f"{how}, which TorchScript keeps where it can't be read")
        if callable(found) and hasattr(found, "__qualname__"):
            module = getattr(found, "__module__", None) or type(found).__module__
            if not is_own(module):
                return (
                    module,
                    found.__qualname__,
                    self._package(module),
                )  # a ufunc, a compiled one
        if callable(found) and hasattr(found, "__wrapped__"):
            package = self._package(type(found).__module__)
            return ["wrapper", package, self._thing(found.__wrapped__, how)]
        return None

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
        self.watch.attribute(found, "__bases__")
        self.watch.equal(vars(found).__len__)  # more attributes: those that are there are watched
        bases = [self._thing(each, f"{who} inherits") for each in (*found.__bases__, type(found))]
        parts: list[object] = [module_of(found), who, bases]
        for name, value in declared_by(found):
            parts.append((name, self._form(value, f"{who} has {name}")))
        for name, hint in types_of(found):
            with contextlib.suppress(Unkeyable):  # few look at types, and fewer at such
                parts.append((name, self._form(hint, who)))
        if issubclass(found, enum.Enum):
            parts.append([(name, self._form(each.value, who)) for name, each in
                          found.__members__.items()])  # fmt: skip
        for name, value in sorted(vars(found).items()):
            if name not in _OF_EVERY_CLASS and name not in self._ignored:
                self.watch.item(vars(found), name)
                parts.append((name, self._attribute(name, value, f"{who} has {name}")))
        return parts

    def _attribute(self, name: str, value: object, how: str) -> object:
        if isinstance(value, Wrapper):
            return self._thing(value, how)
        if isinstance(value, functools.partialmethod):
            given = self._form((value.args, value.keywords), how)
            return ["partial", self._thing(value.func, how), given]
        functions = [self._thing(each, how) for each in _functions(value)]
        if functions or isinstance(value, (*_OF_SLOTS, enum.Enum)):
            return functions
        try:
            return self._thing(value, how)
        except Unkeyable:
            # What Python, data classes and the like add follows from the rest.
            if name[:2] == name[-2:] == "__" and not is_own(type(value).__module__):
                return type(value).__qualname__
            raise

    def _form(self, value: object, how: str) -> object:
        try:
            if not is_fixed(value):  # first: what changes meanwhile is not what it was
                self.watch.equal(functools.partial(form_of, value, id))
            form = form_of(value, lambda thing: cast(FieldValue, self._thing(thing, how)))
        except Unkeyable as error:
            raise Unkeyable(
                f"{how}{error.place}: {error.message}",
                hint="pass it as an argument, or name it in depends= with a registered form, or in "
                "ignore= where it can't change a result",
            ) from None
        return form


def _functions(value: object) -> Iterator[types.FunctionType]:
    if isinstance(value, types.FunctionType):
        yield value
    elif isinstance(value, property):
        for each in (value.fget, value.fset, value.fdel):
            yield from _functions(each)
    elif isinstance(value, functools.cached_property):
        yield from _functions(value.func)
    elif isinstance(value, (classmethod, staticmethod, *_TRANSPARENT)):
        yield from _functions(value.__wrapped__)  # type: ignore[union-attr]


def is_fixed(value: object) -> bool:
    """Whether a name that is bound to it has its content as long as it is bound to it."""
    if type(value) in (tuple, frozenset):
        return all(map(is_fixed, value))  # type: ignore[call-overload]
    return isinstance(value, _UNCHANGING) or type(value).__module__ == "typing"
