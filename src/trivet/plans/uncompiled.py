"""What a model answers without its plans, asked before any of them is loaded.

A model beside its own plan takes twice the memory, which may be more than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from trivet.errors import TrivetError
from trivet.plans import canary
from trivet.plans.backend import Executable

if TYPE_CHECKING:
    from trivet.plans.model import Arrays, TensorInfo
    from trivet.plans.shapes import Variant


class NoAnswers(TrivetError):
    """A model can't be loaded without a plan, so there is nothing to hold its plans against."""


class UncompiledAnswers:
    """Answers of one model to the made-up inputs of its variants.

    ``load`` loads the model as it is; it is called once, and what it returns is not kept.
    """

    def __init__(self, load: Callable[[], Executable]) -> None:
        self._load = load
        self._asked = False
        self._answers: dict[Variant, Arrays | None | Exception] = {}

    def ask(self, inputs: Sequence[TensorInfo], variants: Iterable[Variant]) -> bool:
        """Run the model for all ``variants``, unless that was done; True if it was not.

        Raises nothing: what fails is told by `of`, when it is known whether plans do better.
        """
        if self._asked:
            return False
        self._asked = True
        failed: Exception | None = None
        try:
            model = self._load()
        except Exception as error:  # noqa: BLE001  a framework may say anything
            failed = error.with_traceback(None)  # which holds what was half loaded
        for each in variants:
            self._answers[each] = failed or _answers(model, inputs, each)
        return True

    def of(self, variant: Variant) -> Arrays | None:
        """The answers; None where no input can be made up that the model takes.

        Raises:
            MemoryError: there was not enough to run it.
            NoAnswers: it can't be loaded.
        """
        found = self._answers[variant]
        if isinstance(found, TrivetError | MemoryError | OSError):
            raise found
        if isinstance(found, Exception):
            raise NoAnswers(f"the model can't be loaded without a plan: {found}") from found
        return found


def _answers(
    model: Executable, inputs: Sequence[TensorInfo], variant: Variant
) -> Arrays | None | Exception:
    try:
        return canary.expected_of(model, canary.canary_inputs(inputs, variant.shapes))
    except MemoryError as error:  # for this variant; a smaller one may fit
        return error.with_traceback(None)
