"""From a call to its key."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from trivet.errors import Unkeyable
from trivet.keys import FieldValue, Fingerprint, Key
from trivet.values.forms import form_of
from trivet.values.functions import Identity
from trivet.values.normalise import Normaliser
from trivet.values.packages import is_brought, module_of, state_of
from trivet.values.remembered import CALLS, NotRemembered, Remembered, is_plain
from trivet.values.watch import Watch

SPACE = "value/1"
FUNCTION = "function"  # the field with the name of the function
_IDENTITIES = 256  # of functions and classes met in arguments


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a memo's author said about keys; see `trivet.values.memo`."""

    version: str | None
    depends: tuple[object, ...]
    ignore: frozenset[str]
    normalise: Mapping[str, tuple[Normaliser, ...]]
    tenant: str | Callable[[], str] | None


class CallKeys:
    """Makes the key of each call of one function.

    Attributes:
        name: of the function.
        stated: what results depend on besides arguments and code, as the memo's author said.
        has_tenants: whether results are of one tenant each.

    Raises `TypeError` for names that are no parameters, and for a call that doesn't fit.
    """

    def __init__(self, function: types.FunctionType, settings: Settings) -> None:
        self.name = f"{module_of(function)}.{function.__qualname__}"
        self._signature = _own_signature(function)
        self._settings = settings
        parameters = self._signature.parameters
        # A parameter that is ignored is no reason to ignore a global of the same name in a helper.
        self._ignored = settings.ignore - parameters.keys()
        normalisers = tuple(each for some in settings.normalise.values() for each in some)
        self.has_tenants = settings.tenant is not None
        self._identity = Identity(
            function, settings.depends, self._ignored, normalisers, self.has_tenants
        )
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
        self.stated = (*filter(None, [settings.version]), *normalisers, *settings.depends)
        self._count = (
            len(parameters)
            if kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY}
            else -1
        )
        # Of the last few only: programs pass functions that they make at each call.
        self._identity_of = functools.lru_cache(_IDENTITIES)(
            functools.partial(
                Identity,
                declared=settings.depends,
                ignored=self._ignored,
                has_tenants=self.has_tenants,
            )
        )
        self._asks_tenant = callable(settings.tenant)
        # A default may change in place, which the code tells; but with a version nobody asks that.
        defaults = (
            each.default for name, each in parameters.items() if name not in settings.ignore
        )
        is_fixed = all(each is inspect.Parameter.empty or is_plain(each) for each in defaults)
        self._calls = CALLS if is_fixed or not settings.version else 0
        self._remembered: Remembered | None = None  # replaced whole: threads read it

    def key(self, args: tuple[object, ...], named: Mapping[str, object]) -> Key:
        """The key of the call ``function(*args, **named)``. Raises `Unkeyable`."""
        remembered = self._remembered
        if remembered is None or not remembered.watch.holds():
            remembered = self._renewed()
        if self._asks_tenant:
            args = (self._tenant(), *args)
        try:
            return remembered.known(*args, **named) if named else remembered.known(*args)
        except NotRemembered as made:
            return made.key
        except Unkeyable:  # a `TypeError`, too; made anew at each level of nodes it takes for ever
            raise
        except TypeError:  # no hash; or the call doesn't fit, which this says again
            return remembered.make(args, named)

    def made(self) -> list[tuple[Any, ...]]:
        """Arguments of calls whose keys are remembered."""
        calls = [] if self._remembered is None else self._remembered.calls()
        return [each[1:] for each in calls] if self._asks_tenant else calls

    def _renewed(self) -> Remembered:
        """Of what holds for all calls now. Raises `Unkeyable`."""
        version: str | bytes | None = self._settings.version
        form = functools.partial(form_of, self._settings.depends, self._code)
        watch = Watch()
        if not all(map(is_plain, self._settings.depends)):
            version = version or watch.equal(self._identity.digest)
            depends = watch.equal(form)
        else:
            depends = form()
            if not version:
                watch, version = self._identity.now()
        make = functools.partial(self._make, version, depends)
        self._remembered = Remembered(watch, make, self._calls)
        return self._remembered

    def _tenant(self) -> str:
        tenant = self._settings.tenant() if callable(self._settings.tenant) else None
        if not (tenant and isinstance(tenant, str)):
            raise Unkeyable(
                f"the tenant of a call of {self.name}() is {tenant!r}",
                hint="let tenant= return a text for every call; there is no tenant that is nobody",
            )
        return tenant

    def _make(
        self,
        version: str | bytes | None,
        depends: FieldValue,
        args: Sequence[object],
        named: Mapping[str, object],
    ) -> Key:
        tenant: Any = self._settings.tenant
        if self._asks_tenant:
            tenant, *args = args
        fields: dict[str, Any] = {
            FUNCTION: self.name,
            "version": version,
            "arguments": self._arguments(args, named),
        }
        if tenant is not None:
            fields["tenant"] = tenant
        if self._settings.depends:
            fields["depends"] = depends
        return Key(SPACE, fields)

    def _code(self, thing: Any) -> FieldValue:
        """What a function or class does that is met in an argument."""
        if is_brought(thing):
            return state_of(thing.__module__)
        return Fingerprint(self._identity_of(thing).digest())

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
                if error.names_call:  # that of a node below
                    raise
                told = Unkeyable(
                    f"argument {name}{error.place} of {self.name}() can't be part of a key: "
                    f"{error.message}",
                    hint=f"{error.hint or 'pass something else'}; or leave it out: "
                    f"ignore=({name!r},)",
                )
                told.names_call = True
                raise told from None
        return forms


class BoundKeys:
    """Those of calls of a method of ``instance``."""

    def __init__(self, keys: CallKeys | BoundKeys, instance: object) -> None:
        self.name: str = keys.name
        self._keys, self.instance = keys, instance

    def key(self, args: tuple[object, ...], named: Mapping[str, object]) -> Key:
        """As `CallKeys.key`."""
        return self._keys.key((self.instance, *args), named)

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
