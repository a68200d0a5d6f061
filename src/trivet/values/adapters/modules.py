"""Modules of PyTorch, as parts of keys: by their weights, their settings and their code.

Hashing weights takes a while, so a module's forms are remembered together with all that shows
whether they still hold; see `seen.py`.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from trivet.errors import Unkeyable
from trivet.keys import FieldValue
from trivet.values.adapters.seen import HOOKS, MADE_OF, Structure, Weights
from trivet.values.forms import Code, form_of
from trivet.values.packages import is_brought
from trivet.values.walk import is_fixed
from trivet.values.watch import is_same

# About loading, saving and differentiating, or of the hooks above.
_HARMLESS = frozenset(
    {"_is_full_backward_hook", "_non_persistent_buffers_set", "_forward_hooks_with_kwargs",
     "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks",
     "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"}
)  # fmt: skip
_HOOKED = torch.nn.modules.module
_OF_ALL_MODULES = (
    *(_HOOKED._global_forward_pre_hooks, _HOOKED._global_forward_hooks),
    *(_HOOKED._global_backward_pre_hooks, _HOOKED._global_backward_hooks),
)
_NO_SETTINGS = frozenset({*MADE_OF, *HOOKS, *_HARMLESS})
_FORMS = 4  # that are remembered of a module


def module_parts(module: torch.nn.Module) -> list[tuple[str, object]]:
    """Everything that a call depends on but code. Raises `Unkeyable` for a module with hooks, and
    for one that draws random numbers as it is."""
    own = vars(module)
    if _is_random(module):
        raise Unkeyable(
            f"a {type(module).__name__} in training mode draws random numbers",
            hint="call eval() on the model first",
        )
    if any(own.get(each) for each in HOOKS) or any(_OF_ALL_MODULES):
        raise Unkeyable("a module with hooks has no known form")
    return [("settings", _settings(module)), *((each, dict(own[each])) for each in MADE_OF)]


def _is_random(module: torch.nn.Module) -> bool:
    if not module.training:
        return False
    if isinstance(module, torch.nn.MultiheadAttention):
        return bool(module.dropout)
    return isinstance(module, torch.nn.RReLU) or (
        isinstance(module, torch.nn.modules.dropout._DropoutNd) and 0 < module.p < 1
    )


def remembered(
    module: torch.nn.Module, code: Code, make: Callable[[Code], FieldValue]
) -> FieldValue:
    """The module's form: what ``make`` made of it before, if that still holds."""
    number = id(module)
    begun = _begun.__dict__.setdefault("modules", set())
    if number in begun:
        raise Unkeyable("a module that holds itself has no known form")
    begun.add(number)
    try:
        known = _known.get(number)
        if known is None or not known.holds(module):
            known = _Known(module)
        form = known.form(code, make)
    finally:
        begun.remove(number)
    if _known.get(number) is not known:
        if number not in _known:
            weakref.finalize(module, _known.pop, number, None)
        _known[number] = known
    return form


class _Known:
    """A module's forms, and what the module was when they were made.

    The module itself is not held on to.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            raise Unkeyable("a module of TorchScript keeps its code where it can't be read")
        if any(map(is_lazy, module.parameters())):
            raise Unkeyable("a lazy module has no weights before its first call")
        # Looked at before a form is made: what changes meanwhile is not what it was made of.
        self._structure = Structure(module)
        self._changeable = list(_forms_of_settings(module))
        self._weights = Weights([*module.parameters(), *module.buffers()])
        # By what the code was that was met: some ask for code by its digest, some by its id.
        self._forms: list[tuple[list[tuple[object, FieldValue]], FieldValue]] = []

    def holds(self, module: torch.nn.Module) -> bool:
        """Whether the module is what it was, but for the code of its classes."""
        try:
            return (
                not any(_OF_ALL_MODULES)
                and self._structure.is_as_it_was(module)
                and self._weights.are_as_they_were()
                and all(is_same(form_of(value, id), form) for value, form in self._changeable)
            )
        except RuntimeError:  # another thread is changing it
            return False

    def form(self, code: Code, make: Callable[[Code], FieldValue]) -> FieldValue:
        """The form with ``code``: what was made before, or what ``make`` makes now."""
        # Of each thing once: of what it has visited before, a walk says no more than that.
        answers: dict[int, FieldValue] = {}

        def once(thing: Any) -> FieldValue:
            if id(thing) not in answers:
                answers[id(thing)] = code(thing)
            return answers[id(thing)]

        for codes, form in self._forms:
            if all(is_same(once(thing), told) for thing, told in codes):
                return form
        codes = []
        form = make(_noting(once, codes))
        self._forms = [*self._forms[1 - _FORMS :], (codes, form)]
        return form


def _noting(code: Code, codes: list[tuple[object, FieldValue]]) -> Code:
    met: set[object] = set()

    def noted(thing: Any) -> FieldValue:
        told = code(thing)
        # Of what a package brought its release and settings are told: the same for all of it.
        subject = thing.__module__.partition(".")[0] if is_brought(thing) else id(thing)
        if subject not in met:
            met.add(subject)
            codes.append((thing, told))
        return told

    return noted


def _settings(module: torch.nn.Module) -> dict[str, Any]:
    return {name: each for name, each in vars(module).items() if name not in _NO_SETTINGS}


def _forms_of_settings(module: torch.nn.Module) -> Iterator[tuple[object, FieldValue]]:
    for each in module.modules():
        for value in _settings(each).values():
            if not (is_fixed(value) or isinstance(value, (torch.dtype, torch.device))):
                with contextlib.suppress(Unkeyable):  # which is raised when the form is made
                    yield value, form_of(value, id)


_known: dict[int, _Known] = {}
_begun = threading.local()  # a set of the modules whose form this thread is making
