"""Modules of PyTorch, as parts of keys: by their weights, their settings and their code.

Hashing weights takes a while, so a module's form is remembered together with all that shows whether
it still holds: the objects that the module is made of, the version counters of its tensors, and a
few elements of each, since who writes by way of ``.data`` or NumPy changes no counter. Tensors that
are not on the CPU are known by their counters alone.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from operator import is_
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from trivet.errors import Unkeyable
from trivet.keys import FieldValue
from trivet.values.forms import Code, form_of
from trivet.values.walk import is_fixed

_MADE_OF = ("_parameters", "_buffers", "_modules")
# What runs besides `forward`, which nobody can name.
_HOOKS = frozenset(
    {"_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks"}
)
# About loading, saving and differentiating, or of the hooks above.
_HARMLESS = frozenset(
    {"_is_full_backward_hook", "_non_persistent_buffers_set", "_forward_hooks_with_kwargs",
     "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks",
     "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"}
)  # fmt: skip
_NO_SETTINGS = frozenset({*_MADE_OF, *_HOOKS, *_HARMLESS})
_SAMPLED = 8  # elements of a tensor


def module_parts(module: torch.nn.Module) -> list[tuple[str, object]]:
    """Everything that a call depends on but code. Raises `Unkeyable` for a module with hooks."""
    own = vars(module)
    if any(own.get(each) for each in _HOOKS):
        raise Unkeyable("a module with hooks has no known form")
    return [("settings", _settings(module)), *((each, dict(own[each])) for each in _MADE_OF)]


def remembered(
    module: torch.nn.Module, code: Code, make: Callable[[Code], FieldValue]
) -> FieldValue:
    """The module's form: what ``make`` made of it the last time, if that still holds."""
    number = id(module)
    known = _known.get(number)
    if known is None:
        weakref.finalize(module, _known.pop, number, None)
    begun = _begun.__dict__.setdefault("modules", set())
    if number in begun:
        raise Unkeyable("a module that holds itself has no known form")
    begun.add(number)
    try:
        if known is None or not known.holds(code):
            known = _known[number] = _Known(module, code, make)
    finally:
        begun.remove(number)
    return known.form


class _Known:
    """A module's form, and what the module was when that was made."""

    def __init__(
        self, module: torch.nn.Module, code: Code, make: Callable[[Code], FieldValue]
    ) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            raise Unkeyable("a module of TorchScript keeps its code where it can't be read")
        if any(map(is_lazy, module.parameters())):
            raise Unkeyable("a lazy module has no weights before its first call")
        # Looked at before the form is made: what changes meanwhile is not what it was made of.
        self._made_of = [(each, (*each,), (*each.values(),)) for each in _mappings(module)]
        self._kinds = [(weakref.ref(each), type(each)) for each in module.modules()]
        self._changeable = list(_forms_of_settings(module))
        self._tensors = [_Tensor(each) for each in (*module.parameters(), *module.buffers())]
        self._codes: list[tuple[object, FieldValue]] = []
        self.form = make(self._noting(code))

    def _noting(self, code: Code) -> Code:
        def noted(thing: object) -> FieldValue:
            told = code(thing)
            if not any(each is thing for each, _ in self._codes):
                self._codes.append((thing, told))
            return told

        return noted

    def holds(self, code: Code) -> bool:
        """Whether the form would be made the same."""
        return (
            all(
                len(now) == len(names)
                and all(map(is_, now, names))
                and all(map(is_, now.values(), values))
                for now, names, values in self._made_of
            )
            and all(type(each()) is kind for each, kind in self._kinds)
            and all(each.is_as_it_was() for each in self._tensors)
            and all(form_of(value, id) == form for value, form in self._changeable)
            and all(code(thing) == told for thing, told in self._codes)
        )


class _Tensor:
    """What a tensor was when it was hashed."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self._facts = _facts(tensor)
        self._few: Any = _few_elements(tensor)
        self._had = self._few.tobytes()

    def is_as_it_was(self) -> bool:
        """Whether the tensor has the content that it had."""
        tensor = self._tensor()
        return (
            tensor is not None
            and _facts(tensor) == self._facts
            and self._few.tobytes() == self._had
        )


def _facts(tensor: torch.Tensor) -> tuple[object, ...]:
    return (
        tensor._version,
        tensor.data_ptr(),
        tensor.requires_grad,
        tensor.dtype,
        tensor.shape,
        tensor.stride(),
        tensor.is_conj(),
    )


def _few_elements(tensor: torch.Tensor) -> Any:
    """A view of some of a tensor's elements, as bytes of shape (elements, size of one)."""
    whole = torch.empty(0, dtype=torch.uint8)
    size = tensor.element_size()
    if tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.numel():
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        span = 1 + sum((count - 1) * step for count, step in steps)
        first = tensor.storage_offset() * size
        whole = whole.set_(tensor.untyped_storage())[first : first + span * size]
    elements: Any = whole.numpy().reshape(-1, size)
    return elements[:: max(1, len(elements) // _SAMPLED)]


def _mappings(module: torch.nn.Module) -> Iterator[Mapping[str, Any]]:
    for each in module.modules():
        own = vars(each)
        yield own
        for name in _MADE_OF:
            yield own[name]


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
