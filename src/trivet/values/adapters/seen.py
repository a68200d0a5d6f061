"""What a module of PyTorch was when it was looked at, and whether it still is.

That is asked at every call of a memo, of hundreds of modules and tensors. So whatever is compared
is gathered into one sequence over all of them, which C compares.

Who writes into a tensor by way of ``.data`` or NumPy changes no counter, so a few elements of each
are compared, too. Tensors that are not on the CPU are known by their counters alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import attrgetter, is_
from typing import Any

import numpy as np
import torch

from trivet.errors import Unkeyable

MADE_OF = ("_parameters", "_buffers", "_modules")
# What runs besides `forward`, which nobody can name.
HOOKS = frozenset(
    {"_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks"}
)
_SAMPLED = 8  # elements of a tensor
_UNSIGNED = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}  # by size; only bytes are compared
_facts = attrgetter("_version", "requires_grad", "dtype", "shape")


class Structure:
    """All attributes of a module and of those in it, as objects: rebinding one is noticed.

    Held on to is all but the module itself.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        modules = [*module.modules()]
        self._inner = modules[1:]
        self._kinds = [*map(type, modules)]
        self._own = [vars(each) for each in modules]
        parts = (own[name] for own in self._own for name in MADE_OF)
        self._mappings: list[dict[str, Any]] = [*self._own, *parts]
        self._sizes = [*map(len, self._mappings)]
        self._names = [*chain.from_iterable(self._mappings)]
        self._views = [each.values() for each in self._mappings]
        self._values = [*chain.from_iterable(self._views)]
        self._hooks = [own[name] for own in self._own for name in HOOKS if name in own]

    def is_as_it_was(self, module: torch.nn.Module) -> bool:
        """Whether it is. Raises RuntimeError when somebody is changing it."""
        modules = (module, *self._inner)
        return (
            all(map(is_, map(type, modules), self._kinds))
            and all(map(is_, map(vars, modules), self._own))
            and not any(self._hooks)
            and [*map(len, self._mappings)] == self._sizes
            and all(map(is_, chain.from_iterable(self._views), self._values))
            and [*chain.from_iterable(self._mappings)] == self._names
        )


class Weights:
    """Tensors: where their content is and how it is seen, how often it was changed, and a few
    elements of it. Raises `Unkeyable` for those without fixed bytes."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        for each in tensors:
            if each.layout is not torch.strided:
                raise Unkeyable(f"a tensor of layout {each.layout} has no fixed bytes")
        self._tensors = tensors
        self._complex = [each for each in tensors if each.is_complex()]
        self._facts = self._facts_now()
        samples: dict[int, list[Any]] = {}
        for each in tensors:
            if each.device.type == "cpu" and each.layout is torch.strided and each.numel():
                samples.setdefault(each.element_size(), []).append(_some_elements(each))
        self._samples = [*samples.values()]
        self._had = self._elements_now()

    def are_as_they_were(self) -> bool:
        """Whether they are."""
        # Elements last: where facts have changed, the memory may be gone.
        return self._facts_now() == self._facts and self._elements_now() == self._had

    def _facts_now(self) -> tuple[list[Any], ...]:
        tensors = self._tensors
        return (
            [*map(_facts, tensors)],
            [*map(torch.Tensor.data_ptr, tensors)],
            [*map(torch.Tensor.stride, tensors)],
            [*map(torch.Tensor.is_conj, self._complex)],
        )

    def _elements_now(self) -> list[bytes]:
        return [np.concatenate(each).tobytes() for each in self._samples]


def _some_elements(tensor: torch.Tensor) -> Any:
    """A view of some elements of a tensor on the CPU, in one dimension."""
    size = tensor.element_size()
    steps: Iterable[tuple[int, int]] = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((count - 1) * step for count, step in steps)
    first = tensor.storage_offset() * size
    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    elements: Any = whole[first : first + span * size].numpy().view(_UNSIGNED[size])
    return elements[:: max(1, span // _SAMPLED)]
