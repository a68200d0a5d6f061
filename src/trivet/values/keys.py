"""From a call to its key."""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from trivet.errors import Unkeyable
from trivet.keys import FieldValue, Fingerprint, Key
from trivet.values.forms import form_of
from trivet.values.functions import Identity
from trivet.values.normalise import Normaliser
from trivet.values.packages import is_brought, state_of

SPACE = "value/1"
# Only of these types are equal values the same value: 0.0 equals -0.0, and a tuple may hold both.
_SAME_IF_EQUAL = frozenset({str, int, bytes, bool, type(None)})
_REMEMBERED = 4096
_LONGEST = 1 << 14  # a text or bytes beyond is not held on to


_About = tuple[str | bytes, str | None, FieldValue]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a memo's author said about keys; see `trivet.values.memo`."""

    version: str | None
    depends: tuple[object, ...]
    ignore: frozenset[str]
    normalise: Mapping[str, tuple[Normaliser, ...]]
    tenant: str | Callable[[], str] | None


class CallKeys:
    """Makes the key of each call of one function.

    Raises `TypeError` for names that are no parameters, and for a call that doesn't fit.
    """

    def __init__(self, function: types.FunctionType, settings: Settings) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._signature = _own_signature(function)
        self._settings = settings
        parameters = self._signature.parameters
        # A parameter that is ignored is no reason to ignore a global of the same name in a helper.
        self._ignored = settings.ignore - parameters.keys()
        normalisers = tuple(each for some in settings.normalise.values() for each in some)
        self._identity = Identity(function, settings.depends, self._ignored, normalisers)
        named = settings.ignore | settings.normalise.keys()
        hidden = named & inspect.signature(function).parameters.keys() - parameters.keys()
        if hidden:
            raise TypeError(
                f"{self.name}() is decorated, and {', '.join(sorted(hidden))} is a parameter of "
                "what it wraps; put memo() below the other decorator"
            )
        unknown = settings.normalise.keys() - parameters.keys()
        if unknown:
            raise TypeError(f"{self.name}() has no parameter {', '.join(sorted(unknown))}")
        kinds = {each.kind for each in parameters.values()}
        self._count = (
            len(parameters)
            if kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY}
            else -1
        )
        self._identities: weakref.WeakKeyDictionary[Any, Identity] = weakref.WeakKeyDictionary()
        self._is_plain = settings.tenant is None and not settings.depends
        # By arguments: their types, and the key.
        self._remembered: tuple[_About | None, dict[tuple[object, ...], tuple[list[type], Key]]]
        self._remembered = (None, {})

    def key(self, args: tuple[object, ...], named: Mapping[str, object]) -> Key:
        """The key of the call ``function(*args, **named)``. Raises `Unkeyable`."""
        about = self._about()
        # Read once, with what it is for: another thread may be asking for another tenant.
        made_for, remembered = self._remembered
        if about != made_for:
            remembered = {}
            self._remembered = about, remembered
        if named:
            return self._make(args, named, about)
        try:
            known = remembered.get(args)
        except TypeError:  # no hash
            return self._make(args, named, about)
        kinds = [*map(type, args)]
        if known is not None and known[0] == kinds:  # 1, True and 1.0 are equal
            return known[1]
        key = self._make(args, named, about)
        if _SAME_IF_EQUAL.issuperset(kinds) and not any(
            isinstance(each, (str, bytes)) and len(each) > _LONGEST for each in args
        ):
            if len(remembered) >= _REMEMBERED:
                remembered.clear()
            remembered[args] = kinds, key
        return key

    def made(self) -> list[tuple[Any, ...]]:
        """Arguments of calls whose keys are remembered."""
        return list(self._remembered[1])

    def _about(self) -> _About:
        """What holds for all calls now."""
        settings = self._settings
        version = settings.version or self._identity.digest()
        if self._is_plain:
            return version, None, None
        tenant = settings.tenant() if callable(settings.tenant) else settings.tenant
        if callable(settings.tenant) and not (tenant and isinstance(tenant, str)):
            raise Unkeyable(
                f"the tenant of a call of {self.name}() is {tenant!r}",
                hint="let tenant= return a text for every call; there is no tenant that is nobody",
            )
        return version, tenant, form_of(settings.depends, self._code) if settings.depends else None

    def _make(self, args: Sequence[object], named: Mapping[str, object], about: _About) -> Key:
        version, tenant, depends = about
        fields: dict[str, Any] = {
            "function": self.name,
            "version": version,
            "arguments": self._arguments(args, named),
        }
        if tenant is not None:
            fields["tenant"] = tenant
        if depends is not None:
            fields["depends"] = depends
        return Key(SPACE, fields)

    def _code(self, thing: Any) -> FieldValue:
        """What a function or class does that is met in an argument."""
        if is_brought(thing):
            return state_of(thing.__module__)
        identity = self._identities.get(thing)
        if identity is None:
            identity = Identity(thing, self._settings.depends, self._ignored)
            self._identities[thing] = identity
        return Fingerprint(identity.digest())

    def _arguments(self, args: Sequence[object], named: Mapping[str, object]) -> dict[str, Any]:
        if not named and len(args) == self._count:
            given = dict(zip(self._signature.parameters, args, strict=True))
        else:
            bound = self._signature.bind(*args, **named)
            bound.apply_defaults()
            given = bound.arguments
        settings, forms = self._settings, {}
        for name, value in given.items():
            if name in settings.ignore:
                continue
            alike = functools.reduce(_normalised, settings.normalise.get(name, ()), value)
            try:
                forms[name] = form_of(alike, self._code)
            except Unkeyable as error:
                raise Unkeyable(
                    f"argument {name}{error.place} of {self.name}() can't be part of a key: "
                    f"{error.message}",
                    hint=f"{error.hint or 'pass something else'}; or leave it out: "
                    f"ignore=({name!r},)",
                ) from None
        return forms


class BoundKeys:
    """Those of calls of a method of ``instance``."""

    def __init__(self, keys: CallKeys | BoundKeys, instance: object) -> None:
        self.name: str = keys.name
        self._keys, self._instance = keys, instance

    def key(self, args: tuple[object, ...], named: Mapping[str, object]) -> Key:
        """As `CallKeys.key`."""
        return self._keys.key((self._instance, *args), named)

    def made(self) -> list[tuple[Any, ...]]:
        """None: instances are not held on to."""
        return []


def _own_signature(function: types.FunctionType) -> inspect.Signature:
    """Not that of a function that it wraps, which may have other defaults."""
    code, closure = function.__code__, function.__closure__
    bare = types.FunctionType(code, {}, function.__name__, function.__defaults__, closure)
    bare.__kwdefaults__ = function.__kwdefaults__
    return inspect.signature(bare)


def _normalised(value: object, normaliser: Normaliser) -> object:
    return normaliser(value) if isinstance(value, str) else value
