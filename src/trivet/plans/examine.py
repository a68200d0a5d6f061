"""Tests of a model's plans with what is installed now: loaded anew, run, and held against others.

A load trusts what was tested before. Here nothing is taken on trust, and what can't be tested is
said.
"""

from __future__ import annotations

import contextlib
import enum
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trivet.cache import Artifact, Cache, Failed, Hit
from trivet.errors import CorruptEntry, ShapeError, TrivetError
from trivet.keys import Key
from trivet.plans import canary
from trivet.plans.backend import Backend, Executable, runs_uncompiled
from trivet.plans.compare import difference, misfit, says_nothing, widened
from trivet.plans.errors import NOT_WORTH_KEEPING, recorded_reason
from trivet.plans.key import OF_BUILD, SPACE, part
from trivet.plans.outcome import Loaded, Source, Target
from trivet.plans.report import Phase, StartReport
from trivet.plans.uncompiled import UncompiledAnswers

if TYPE_CHECKING:
    from trivet.plans.model import Arrays
    from trivet.plans.plan import Plan
    from trivet.plans.shapes import Variant


class Against(enum.StrEnum):
    """What a plan's answers are held against."""

    CANARY = "canary"  # what this plan gave when it was made
    UNCOMPILED = "uncompiled"  # the model as the framework runs it without a plan
    PREVIOUS = "previous"  # the canary of the plan that an earlier build of the framework made
    REFERENCE = "reference"  # answers that the caller brought


class Agreement(enum.StrEnum):
    """What came of holding one against the other."""

    SAME = "same"
    DIFFERS = "differs"
    UNKNOWN = "unknown"  # they could not be compared


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison; ``detail`` says what differs, or why nothing was compared."""

    against: Against
    result: Agreement
    detail: str = ""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that are known to be right.

    Attributes:
        inputs: of the request; None for those that `canary_inputs` makes up for the smallest
            variant.
        outputs: by name; the model may have more.
        tolerance: part of an output's largest element by which elements may differ.
    """

    inputs: Arrays | None
    outputs: Arrays
    tolerance: float = 1e-3


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about one variant.

    ``size`` is in bytes; ``varies`` says that the plan gives other answers at each run.
    """

    key: Key
    source: Source
    reason: str
    error: str  # why there is no plan to keep; empty where there is
    size: int
    phases: tuple[Phase, ...]
    checks: tuple[Check, ...]
    varies: bool

    @property
    def wrong(self) -> list[Check]:
        """The comparisons that found a difference."""
        return [each for each in self.checks if each.result is Agreement.DIFFERS]


class NotRun(TrivetError):
    """A plan could be loaded, and nothing is known that it could be tested with."""


class Examination:
    """Tests of one model's variants; made by `Plans.examination`.

    Args:
        cache, backend: of the plans.
        targets: what is looked up for each variant.
        open: opens a plan without loading anything.
        uncompiled: loads the model as it is.
    """

    def __init__(
        self,
        cache: Cache,
        backend: Backend,
        targets: Mapping[Variant, Target],
        open: Callable[[], Plan],  # noqa: A002
        uncompiled: Callable[[], Executable],
    ) -> None:
        self._cache = cache
        self._backend = backend
        self._targets = targets
        self._open = open
        self._uncompiled = UncompiledAnswers(uncompiled) if runs_uncompiled(backend) else None

    def variants(self) -> tuple[Variant, ...]:
        """All of them, the smallest first."""
        return tuple(self._targets)

    def examine(
        self, variant: Variant, reference: Reference | None = None, *, previous: bool = True
    ) -> Examined:
        """Load one variant's plan, or make it, and run it.

        A failure that is on record is tried again, and a plan that is found wrong is forgotten, so
        that nobody is served by it and no later examination takes it for granted. ``previous`` says
        whether it is held against the plan that an earlier build of the framework made.

        Raises:
            PlanFailed: it can't be compiled, and the plans were told to refuse.
            NotRun: it takes no input that can be made up, or answers NaN alone, and there is no
                reference.
            NoAnswers: there is a plan, and the uncompiled model can't be loaded.
            ShapeError: the rules don't fit the model or the reference.
        """
        target = self._targets[variant]
        self._forget_failure(target)
        plan = self._open()
        phases = self._ask_uncompiled(plan)
        loaded = plan.prepare(variant)[0]
        phases += loaded.phases
        checks = [self._own_canary(loaded, target)]
        inputs = canary.canary_inputs(plan.inputs, variant.shapes)
        found = canary.expected_of(loaded.executable, inputs)
        varies = self._varies(loaded, inputs, found, target)
        if loaded.source is not Source.UNCOMPILED and self._uncompiled is not None:
            right = self._uncompiled.of(variant)
            checks.append(self._against_uncompiled(found, right, target, varies=varies))
        if previous and not varies and found is not None and loaded.artifact is not None:
            checks += self._against_previous(found, target, loaded.artifact)
        if reference is not None:
            checks += self._against_reference(plan, variant, reference)
            phases += [each for each in plan.report.phases if each.name == "first run"]
        examined = Examined(
            key=loaded.key,
            source=loaded.source,
            reason=loaded.reason,
            error=loaded.error,
            size=loaded.artifact.manifest.size if loaded.artifact is not None else 0,
            phases=tuple(phases),
            checks=tuple(checks),
            varies=varies,
        )
        if examined.wrong:
            self._cache.forget(loaded.key)
        referred = any(each.against is Against.REFERENCE for each in checks)
        if not referred and not examined.wrong:
            _require_answers(found, f"{target.model.name} takes as {variant}")
        return examined

    # -- inside --------------------------------------------------------------------------------

    def _ask_uncompiled(self, plan: Plan) -> list[Phase]:
        """Before anything is loaded: it and a plan are never in memory together."""
        if self._uncompiled is None:
            return []
        report = StartReport()
        with report.phase("import"), contextlib.suppress(Exception):
            self._backend.warm_import()  # what is wrong with it comes again
        return report.phases if self._uncompiled.ask(plan.inputs, self._targets) else []

    def _varies(
        self, loaded: Loaded, inputs: Arrays | None, found: Arrays | None, target: Target
    ) -> bool:
        """Whether the plan gives other answers to the same question now."""
        if inputs is None or found is None:
            return False
        again = loaded.executable.run(inputs)
        return bool(difference(again, found, self._tolerance(target)))

    def _forget_failure(self, target: Target) -> None:
        found = self._cache.get_files(target.bound, also=(target.portable,))
        if isinstance(found, Failed) and recorded_reason(found.error_class) != NOT_WORTH_KEEPING:
            self._cache.forget(target.bound)

    def _own_canary(self, loaded: Loaded, target: Target) -> Check:
        """A plan with a canary that is loaded or made has passed it, or nothing was loaded."""
        name = canary.file_name(target.bound_weights)
        artifact = loaded.artifact
        if artifact is not None and any(each.name == name for each in artifact.manifest.files):
            return _check(Against.CANARY, Agreement.SAME)
        return _check(Against.CANARY, Agreement.UNKNOWN, "none is kept with the plan")

    def _against_uncompiled(
        self, found: Arrays | None, right: Arrays | None, target: Target, *, varies: bool
    ) -> Check:
        if right is None:
            return _check(Against.UNCOMPILED, Agreement.UNKNOWN, "it takes no made-up input")
        if found is None:
            detail = "the plan fails where the model runs"
            return _check(Against.UNCOMPILED, Agreement.DIFFERS, detail)
        if varies and not misfit(found, right):  # that first runs agree says nothing
            detail = "the plan gives another result every time"
            return _check(Against.UNCOMPILED, Agreement.UNKNOWN, detail)
        wrong = difference(found, right, self._tolerance(target))
        return _check(Against.UNCOMPILED, Agreement.DIFFERS if wrong else Agreement.SAME, wrong)

    def _against_previous(self, found: Arrays, target: Target, mine: Artifact) -> list[Check]:
        """Against the last plan before this one that only another build or machine tells apart."""
        name = canary.file_name(target.bound_weights)
        for key in self._earlier(mine):
            stored = self._cache.get_files(key)
            expected = _kept(stored.value, name) if isinstance(stored, Hit) else None
            if expected is None:
                continue
            heads = canary.heads(found)
            wrong = difference(heads, expected, self._tolerance(target))
            told = str(part(key, "backend", "version"))
            detail = f"{wrong} than the plan by {told}" if wrong else told
            result = Agreement.DIFFERS if wrong else Agreement.SAME
            return [_check(Against.PREVIOUS, result, detail)]
        return []

    def _earlier(self, mine: Artifact) -> list[Key]:
        """Keys of such plans, the newest first."""
        made = mine.key
        found = [
            each
            for each in self._cache.entries(SPACE)
            if each.invalid is None
            and each.descriptor.created < mine.descriptor.created
            and each.descriptor.failure is None
            and each.key.get("graph") == made.get("graph")
            and each.key.get("shapes") == made.get("shapes")
            and part(each.key, "backend", "name") == part(made, "backend", "name")
            and _only_another_build(each.key, made)
        ]
        found.sort(key=lambda each: -each.descriptor.created)
        return [each.key for each in found]

    def _against_reference(self, plan: Plan, variant: Variant, reference: Reference) -> list[Check]:
        """Nothing where the reference's request runs in another variant."""
        inputs = reference.inputs
        if inputs is None:
            smallest = plan.variants()[0]
            inputs = canary.canary_inputs(plan.inputs, smallest.shapes)
            if inputs is None:
                raise ShapeError(
                    "the reference has no inputs, and none can be made up for this model",
                    hint="name a file of inputs beside that of outputs",
                )
        if plan.variant(inputs) != variant:
            return []
        outputs = plan.run(inputs)
        wrong = difference(outputs, reference.outputs, (reference.tolerance, 0.0))
        result = Agreement.DIFFERS if wrong else Agreement.SAME
        return [_check(Against.REFERENCE, result, wrong)]

    def _tolerance(self, target: Target) -> tuple[float, float]:
        return widened(self._backend.tolerance(), target.graph.operators)


def _require_answers(found: Arrays | None, taken: str) -> None:
    hint = "name a reference: inputs, and the outputs that are right for them"
    if found is None:
        raise NotRun(
            f"no input can be made up that {taken}, so the plan was loaded and never run", hint=hint
        )
    if says_nothing(found):
        raise NotRun(
            f"from the made-up input that {taken} comes NaN or nothing, so no answer was tested",
            hint=hint,
        )


def _check(against: Against, result: Agreement, detail: str = "") -> Check:
    return Check(against=against, result=result, detail=detail)


def _kept(artifact: Artifact, name: str) -> Arrays | None:
    """One file of arrays out of an artifact, verified; None where it is not there or not whole."""
    from trivet import codecs

    with tempfile.TemporaryDirectory(prefix="trivet-canary-") as folder:
        try:
            artifact.copy_to(Path(folder), only=lambda each: each == name)
            return codecs.Arrays().decode(memoryview((Path(folder) / name).read_bytes()))
        except (CorruptEntry, OSError):
            return None


def _only_another_build(key: Key, mine: Key) -> bool:
    differing = {each.name.partition(".")[0] for each in key.diff(mine)}
    return bool(differing) and differing <= OF_BUILD
