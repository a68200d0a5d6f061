"""`Plan`: a model that is ready to run, one executable for each variant of its shapes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from trivet.errors import ShapeOutside
from trivet.plans.backend import Executable
from trivet.plans.model import TensorInfo, shapes_in_words
from trivet.plans.outcome import Loaded, Source
from trivet.plans.report import StartReport
from trivet.plans.shapes import BoundShapes, Variant

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

Load = Callable[[Variant, StartReport], Loaded]
Outside = Callable[[str, str], None]  # shapes of a request that the rules don't take, and why

_MOST_OUTSIDE = 64  # distinct shapes that are told apart; more say nothing new


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of this process: shapes of the variant that they ran in, or their own where the
    rules take no such request, and how many there were.

    Under threads the numbers may be a little low.
    """

    inside: dict[str, int]
    outside: dict[str, int]


class Plan:
    """A model, ready to run. `run` may be called from any thread.

    Attributes:
        inputs, outputs: of the model, with its own shapes.
        report: where the start of the first variant went.
    """

    def __init__(
        self,
        shapes: BoundShapes,
        outside: Literal["refuse", "fallback"],
        load: Load,
        uncompiled: Callable[[], Executable],
        report: StartReport,
        on_outside: Outside = lambda shapes, why: None,
    ) -> None:
        self.inputs: tuple[TensorInfo, ...] = shapes.inputs
        self.outputs: tuple[TensorInfo, ...] = shapes.outputs
        self.report = report
        self._shapes = shapes
        self._outside = outside
        self._load = load
        self._uncompiled = uncompiled
        self._lock = threading.Lock()
        self._slots: dict[Variant | None, _Slot] = {}
        self._first: Loaded | None = None
        self._has_run = False
        self._on_outside = on_outside
        self._inside: dict[Variant, int] = {}
        self._outside_seen: dict[str, int] = {}

    @property
    def observed(self) -> Observed:
        """What requests this plan was asked to run."""
        inside = {str(variant): count for variant, count in self._inside.copy().items()}
        return Observed(inside=inside, outside=self._outside_seen.copy())

    @property
    def loaded(self) -> Loaded:
        """The first variant that got ready: its source, key, and why it had to be made.

        Raises RuntimeError before any variant was prepared or run.
        """
        if self._first is None:
            raise RuntimeError("no variant of this plan is loaded yet; call prepare() or run()")
        return self._first

    @property
    def source(self) -> Source:
        """Where the first variant came from."""
        return self.loaded.source

    def variants(self) -> tuple[Variant, ...]:
        """All combinations of buckets; one where there are none."""
        return self._shapes.variants()

    def variant(self, inputs: Arrays) -> Variant:
        """The variant that a request with ``inputs`` runs in; only their shapes are looked at.

        Raises `ShapeError` as `run` does.
        """
        return self._shapes.variant(inputs)

    def prepare(self, variant: Variant | None = None) -> list[Loaded]:
        """Get one variant ready, or all of them."""
        wanted = self.variants() if variant is None else (variant,)
        return [self._ready(each) for each in wanted]

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """Run the model on ``inputs``; returns all outputs by name.

        Inputs are padded to the bucket that fits and outputs cut back, as the shape rules say.

        Raises:
            ShapeError: the inputs don't fit the model or, with ``outside="refuse"``, the rules;
                or padding them changes the model's answers.
            PlanFailed: the variant can't be compiled and the choice was to be refused.
        """
        try:
            variant = self._shapes.variant(inputs)
        except ShapeOutside as error:
            self._saw_outside(inputs, error)
            if self._outside == "refuse":
                raise
            return self._ready_uncompiled().run(self._shapes.plain(inputs))
        self._inside[variant] = self._inside.get(variant, 0) + 1
        executable = self._ready(variant).executable
        padded = self._shapes.pad(inputs, variant)
        if self._has_run:
            outputs = executable.run(padded)
        else:
            self._has_run = True
            with self.report.phase("first run"):
                outputs = executable.run(padded)
        return self._shapes.cut(outputs, variant)

    def _saw_outside(self, inputs: Arrays, error: ShapeOutside) -> None:
        """Count it; what is new is told on."""
        shapes = shapes_in_words({name: each.shape for name, each in inputs.items()})
        seen = self._outside_seen
        if shapes in seen:
            seen[shapes] += 1
        elif len(seen) < _MOST_OUTSIDE:
            seen[shapes] = 1
            self._on_outside(shapes, error.message)

    def _ready(self, variant: Variant) -> Loaded:
        def load() -> Loaded:
            report = self.report if self._first is None else StartReport()
            loaded = self._load(variant, report)
            if self._first is None:
                self._first = loaded
            return loaded

        loaded = self._once(variant, load)
        assert isinstance(loaded, Loaded)
        return loaded

    def _ready_uncompiled(self) -> Executable:
        executable = self._once(None, self._uncompiled)
        assert not isinstance(executable, Loaded)
        return executable

    def _once(
        self, variant: Variant | None, load: Callable[[], Loaded | Executable]
    ) -> Loaded | Executable:
        """One load for any number of threads; a failed one is tried again by the next request."""
        with self._lock:
            slot = self._slots.setdefault(variant, _Slot())
        if slot.ready is None:
            with slot.lock:
                if slot.ready is None:
                    slot.ready = load()
        return slot.ready


class _Slot:
    """Where the executable of one variant goes."""

    __slots__ = ("lock", "ready")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ready: Loaded | Executable | None = None
