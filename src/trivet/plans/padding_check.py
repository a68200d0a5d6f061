"""Whether padding reaches the answers: a made-up request, padded and cut, against the model itself.

Padding is right only if no element of a result depends on it. Whoever wrote the shape rules says
that it is so; this looks.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from trivet import log
from trivet.cache import Cache, Hit
from trivet.codecs import Bytes
from trivet.errors import ShapeError
from trivet.keys import FieldValue, Key
from trivet.plans.backend import Executable
from trivet.plans.canary import canary_inputs, expected_of
from trivet.plans.compare import difference, widened
from trivet.plans.memo import CacheMemo
from trivet.plans.model import shapes_in_words

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays
    from trivet.plans.shapes import BoundShapes, Shapes, Variant


class _Asked(NamedTuple):
    """A made-up request, and what the model itself answers to it."""

    sizes: Mapping[str, tuple[int, ...]]
    request: Arrays
    expected: Arrays


def _verdict_key(
    plan: Key, rules: Shapes, bound_weights: bytes, *, uncompiled: bool = False
) -> Key:
    """Where there is no plan, the model itself is what requests are padded for; that it passes
    says nothing about a plan that is made later."""
    fields: dict[str, FieldValue] = {"plan": plan.digest, "rules": repr(rules)}
    if bound_weights:
        fields["weights"] = bound_weights
    if uncompiled:
        fields["uncompiled"] = True
    return Key("padding/3", fields)


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
        self._asked: list[_Asked] | None = None

    def is_known(self, bound: Key, portable: Key) -> bool:
        """Whether there is a verdict for the plan under whichever of the two keys it is stored, or
        for the model itself where none can be made."""
        names = [
            self._name(portable),
            self._name(bound),
            self._name(bound, uncompiled=True),
        ]
        return any(isinstance(self._cache.get(each, Bytes()), Hit) for each in names)

    @contextlib.contextmanager
    def turn(self, variant: Variant, bound: Key, portable: Key, wait: float) -> Iterator[None]:
        """Have the model answer before its plan is loaded: never are both in memory at once.

        Load the plan and call `require` within it. Of all that start now one asks the model; the
        others wait for its verdict, at most ``wait`` seconds. A plan's lease is taken within a
        turn, never the other way round.
        """
        with CacheMemo(self._cache, wait).turn(self._name(bound).digest):
            if not self.is_known(bound, portable):
                # The plan comes first: whatever goes wrong here is told by `require`.
                with contextlib.suppress(Exception):
                    self._asked = list(self._ask(variant))
            yield

    def require(
        self, plan: Executable, key: Key, variant: Variant, *, uncompiled: bool = False
    ) -> None:
        """Raise `ShapeError` where answers of ``plan``, stored under ``key``, show their padding.

        ``uncompiled`` says that it is the model itself, since there is no plan. What can't be
        checked is logged: a model that takes no made-up inputs, or no other size, or for which
        there is no memory left now.
        """
        name = self._name(key, uncompiled=uncompiled)
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

    def _name(self, plan: Key, *, uncompiled: bool = False) -> Key:
        return _verdict_key(plan, self._rules, self._weights, uncompiled=uncompiled)

    def _check(self, plan: Executable, variant: Variant) -> bytes:
        """What is wrong, in words; empty where nothing is."""
        asked = self._ask(variant) if self._asked is None else self._asked
        answered = False
        for sizes, request, expected in asked:
            answered = True
            wrong, found = self._difference(plan, request, expected)
            if wrong and not self._varies(plan, request, found):
                return f"{wrong}, for {shapes_in_words(sizes)}".encode()
        if not answered:
            log.warning("padding to %s can't be checked: the model takes no made-up input", variant)
        return b""

    def _ask(self, variant: Variant) -> Iterator[_Asked]:
        """The smallest request that is padded, or the largest where the model doesn't take that."""
        model = self._uncompiled()
        answered = False
        for sizes in self._shapes.smaller(variant):
            requests = [] if answered else list(self._requests(sizes, variant))
            for request in [*requests, *self._varied(sizes)]:
                expected = expected_of(model, self._shapes.plain(request))
                if expected is not None:
                    answered = True
                    yield _Asked(sizes, request, expected)

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

    def _varied(self, sizes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, Array]]:
        """Made-up inputs with different integers, where there are any: a model may see nothing
        amiss where all are alike.

        They are small and less than any size, as they may be indices or lengths; a model that has
        no use for them says so.
        """
        import numpy as np

        arrays = canary_inputs([each for each in self._shapes.inputs if each.name in sizes], sizes)
        if arrays is None:
            return
        least = min((size for shape in sizes.values() for size in shape if size > 1), default=1)
        differ = False
        for name, array in arrays.items():
            pad = self._rules.pad.get(name, 0)
            values = [each for each in range(1, min(least, 5)) if each != pad]
            if array.dtype.kind in "iu" and len(values) > 1:
                ramp = np.arange(array.size).reshape(array.shape)
                array[...] = np.take(values, ramp * 7919 % 1009 % len(values))
                differ = True
        if differ:
            yield arrays

    def _run(self, plan: Executable, request: Arrays) -> tuple[dict[str, Array], Variant]:
        asked = self._shapes.variant(request)
        try:
            return plan.run(self._shapes.pad(request, asked)), asked
        except MemoryError:
            raise
        except Exception as error:  # a framework may say anything, also of a moment's trouble
            raise ShapeError(
                f"the plan fails for a request that is padded to {asked}: {error}",
                hint="is the pad value one that the model takes?",
            ) from error

    def _difference(
        self, plan: Executable, request: Arrays, expected: Arrays
    ) -> tuple[str, dict[str, Array]]:
        """What is wrong with the plan's answer, and that answer as it came."""
        found, asked = self._run(plan, request)
        try:
            return difference(self._shapes.cut(found, asked), expected, self._tolerance), found
        except ShapeError as error:
            return error.message, found

    def _varies(self, plan: Executable, request: Arrays, found: Arrays) -> bool:
        """Whether the plan gives another answer at each run: then it is not the padding's."""
        return bool(difference(self._run(plan, request)[0], found, self._tolerance))
