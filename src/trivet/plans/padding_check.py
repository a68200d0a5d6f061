"""Whether padding reaches the answers: a made-up request, padded and cut, against the model itself.

Padding is right only if no element of a result depends on it. Whoever wrote the shape rules says
that it is so; this looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from trivet import log
from trivet.cache import Cache, Hit
from trivet.codecs import Bytes
from trivet.errors import ShapeError
from trivet.keys import FieldValue, Key
from trivet.plans.backend import Executable
from trivet.plans.canary import canary_inputs, expected_of
from trivet.plans.compare import difference, widened
from trivet.plans.model import shapes_in_words

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays
    from trivet.plans.shapes import BoundShapes, Shapes, Variant


def _verdict_key(plan: Key, rules: Shapes, bound_weights: bytes) -> Key:
    fields: dict[str, FieldValue] = {"plan": plan.digest, "rules": repr(rules)}
    if bound_weights:
        fields["weights"] = bound_weights
    return Key("padding/2", fields)


def recorded_verdict(cache: Cache, plan: Key, rules: Shapes, bound_weights: bytes) -> str:
    """What was found wrong with padding to the plan stored under ``plan``; empty for nothing."""
    found = cache.host_only.get(_verdict_key(plan, rules, bound_weights), Bytes())
    return found.value.decode() if isinstance(found, Hit) else ""


class PaddingCheck:
    """Checks variants of one model under one set of rules, once for each plan of this host.

    Args:
        cache: where verdicts are kept.
        rules, shapes: the rules, and as bound to the model.
        operators: of the model, as in `GraphId`.
        tolerance: of the backend, between two runs of one plan.
        uncompiled: loads the model as it is, for requests of any shape.
        weights: as `Target.bound_weights`; a verdict holds for the weights it was found with.
    """

    def __init__(
        self,
        cache: Cache,
        rules: Shapes,
        shapes: BoundShapes,
        operators: tuple[str, ...],
        tolerance: tuple[float, float],
        uncompiled: Callable[[], Executable],
        *,
        weights: bytes = b"",
    ) -> None:
        self._cache = cache.host_only  # numbers differ between machines
        self._rules = rules
        self._shapes = shapes
        self._tolerance = widened(tolerance, operators)
        self._uncompiled = uncompiled
        self._weights = weights

    def require(self, plan: Executable, key: Key, variant: Variant) -> None:
        """Raise `ShapeError` where answers of ``plan``, stored under ``key``, show their padding.

        What can't be checked is logged: a model that takes no made-up inputs, or no other size, or
        for which there is no memory left now.
        """
        name = _verdict_key(key, self._rules, self._weights)
        try:
            wrong = self._cache.get_or_compute(name, lambda: self._check(plan, variant), Bytes())
        except MemoryError as error:  # for the model beside its plan; serving needs the plan alone
            log.warning("padding to %s can't be checked now: %r", variant, error)
            return
        if wrong:
            raise ShapeError(
                f"padding to {variant} changes what the model answers: {wrong.decode()}",
                hint="use a mask or a pad value that the model ignores, or say what to cut; a size "
                "that is always the same has no braces (x=4x3). If the model is right and only "
                "made-up inputs are wrong for it: check_padding=False",
            )

    def _check(self, plan: Executable, variant: Variant) -> bytes:
        """What is wrong, in words; empty where nothing is."""
        model = self._uncompiled()
        for sizes in self._shapes.smaller(variant):
            taken = False
            for request in self._requests(sizes, variant):
                plain = self._shapes.plain(request)
                expected = expected_of(model, plain)
                if expected is None:
                    continue
                taken = True
                wrong = self._difference(plan, request, expected)
                if wrong and not difference(model.run(plain), expected, self._tolerance):
                    return f"{wrong}, for {shapes_in_words(sizes)}".encode()
            if taken:
                return b""
        log.warning("padding to %s can't be checked: the model takes no made-up input", variant)
        return b""

    def _requests(
        self, sizes: Mapping[str, tuple[int, ...]], variant: Variant
    ) -> Iterator[dict[str, Array]]:
        """Made-up inputs that no padding is like; none where none can be made up."""
        import numpy as np

        inputs = [each for each in self._shapes.inputs if each.name in sizes]
        arrays = canary_inputs(inputs, sizes)
        if arrays is None:
            return
        of_one_sign = []
        for name, array in arrays.items():
            if array.dtype.kind == "f":
                # One sign along padded axes, so that zeros would be the largest or the smallest.
                across = [
                    size if size == padded else 1
                    for size, padded in zip(array.shape, variant.shapes[name], strict=True)
                ]
                odd = np.arange(math.prod(across)).reshape(across) % 2 == 1
                np.copysign(array, np.where(odd, -1, 1), out=array, casting="same_kind")
                if not odd.any():
                    of_one_sign.append(name)
            else:
                # A model may tell its padding by the value.
                pad = self._rules.pad.get(name, 0)
                array[array == pad] = pad == 0
        yield arrays
        if of_one_sign:
            yield {**arrays, **{name: -arrays[name] for name in of_one_sign}}

    def _difference(self, plan: Executable, request: Arrays, expected: Arrays) -> str:
        asked = self._shapes.variant(request)
        padded = self._shapes.pad(request, asked)
        try:
            outputs = plan.run(padded)
        except MemoryError:
            raise
        except Exception as error:  # a framework may say anything, also of a moment's trouble
            raise ShapeError(
                f"the plan fails for a request that is padded to {asked}: {error}",
                hint="is the pad value one that the model takes?",
            ) from error
        try:
            return difference(self._shapes.cut(outputs, asked), expected, self._tolerance)
        except ShapeError as error:
            return error.message
