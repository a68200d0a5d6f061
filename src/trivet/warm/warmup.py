"""`Warmup`: gets the plans of a server ready, and says how far it is."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from trivet.cache import Cache
from trivet.errors import TrivetError
from trivet.plans import canary
from trivet.plans.activity import Activity, PlanUse
from trivet.plans.errors import NOT_WORTH_KEEPING, recorded_reason
from trivet.plans.key import part
from trivet.plans.outcome import Loaded, OnFailure, Source
from trivet.plans.plan import Plan
from trivet.plans.plans import Plans
from trivet.plans.report import sums
from trivet.warm.coverage import Coverage, covered, recent_uses
from trivet.warm.planfile import Wanted, read_plan_file
from trivet.warm.status import ModelStatus, State, Status, VariantStatus

if TYPE_CHECKING:
    from trivet.plans.model import Arrays
    from trivet.plans.shapes import Variant

Progress = Callable[[int, int, str], None]  # variants done, all of them, the one that is next
_FAILED = "failed"


class Warmup:
    """Gets every variant of some models ready, in a thread of its own.

    ::

        warmup = Warmup(cache, "plan.toml").start()
        app.mount("/ready", readiness_app(warmup))
        encoder = warmup.plan("encoder.onnx")     # the very plan that is being warmed

    Args:
        cache: where plans are kept.
        models: a plan file, or what `read_plan_file` made of one.
        keep: hold what was got ready in memory, and run each variant once with made-up inputs,
            so that no request pays for a first run. False to warm the cache folder for others.

    Raises `PlanFileError` for a plan file that can't be read.
    """

    def __init__(
        self, cache: Cache, models: str | Path | Sequence[Wanted], *, keep: bool = True
    ) -> None:
        wanted = read_plan_file(Path(models)) if isinstance(models, str | Path) else models
        self._cache = cache
        self._models = [_Model(cache, each, keep) for each in wanted]
        self._over = threading.Event()
        self._started = self._ended = 0.0
        self._now = ""
        self._progress: Progress = lambda done, total, what: None

    def start(self) -> Self:
        """Begin, in a thread of its own."""
        threading.Thread(target=self.run, name="trivet-warm-up", daemon=True).start()
        return self

    def run(self, progress: Progress | None = None) -> None:
        """Do all of it in this thread. Raises nothing for what is wrong with a model."""
        self._progress = progress or self._progress
        self._started = time.monotonic()
        try:
            for model in self._models:
                self._step(model.wanted.name)
                with contextlib.suppress(TrivetError, OSError):  # the model notes it
                    model.open()
            for model in self._models:
                for variant in model.variants:
                    self._step(f"{model.wanted.name} {variant}")
                    model.prepare(variant)
            self._step("")
        finally:
            self._ended = time.monotonic()
            self._over.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is over, at most ``timeout`` seconds; whether everything required is ready."""
        self._over.wait(timeout)
        return self.ready

    @property
    def ready(self) -> bool:
        """Whether it is over and everything that is required is ready."""
        return self.state is State.READY

    @property
    def state(self) -> State:
        """`State.FAILED` as soon as something that is required has failed, or when all has."""
        if any(each.state is State.FAILED for each in self._models if each.wanted.required):
            return State.FAILED
        if not self._over.is_set():
            return State.WARMING if self._started else State.WAITING
        states = [each.state for each in self._models]
        # Where nothing is required, anything must have got ready all the same.
        done = State.READY in states and not {State.WAITING, State.WARMING} & set(states)
        return State.READY if done else State.FAILED

    def plan(self, name: str) -> Plan:
        """The plan of the model with this name in the plan file, as soon as it can be used.

        What is not warm yet is got ready when a request needs it.

        Raises KeyError for a name that is not there, and what `Plans.open` raised.
        """
        model = next((each for each in self._models if each.wanted.name == name), None)
        if model is None:
            known = ", ".join(each.wanted.name for each in self._models)
            raise KeyError(f"no model is called {name!r}; there are {known}")
        return model.open()

    def status(self) -> Status:
        """How far it is, what failed, and whether the shapes of requests are covered."""
        activity = self._activity()
        models = [each.status(activity, self._cache.clock.time()) for each in self._models]
        until = self._ended or time.monotonic()
        return Status(
            state=self.state,
            done=sum(len(each.variants) for each in models),
            total=sum(each.total for each in models),
            now=self._now,
            seconds=round(until - self._started, 3) if self._started else 0.0,
            failures=self._failures(models),
            alarms=[x for each in models for x in _alarms(each)],
            models=models,
        )

    # -- inside --------------------------------------------------------------------------------

    def _step(self, what: str) -> None:
        self._now = what
        total = sum(len(each.variants) for each in self._models)
        self._progress(sum(len(each.done) for each in self._models), total, what)

    def _failures(self, models: Sequence[ModelStatus]) -> list[str]:
        told = [x for each in models if each.required for x in _failures(each)]
        if self.state is State.FAILED and not told:
            told.append("no model got ready" if models else "there is no model to get ready")
        return told

    def _activity(self) -> list[PlanUse]:
        return [] if self._cache.store is None else list(Activity(self._cache.store.root))


class _Model:
    """One model on its way."""

    def __init__(self, cache: Cache, wanted: Wanted, keep: bool) -> None:
        self.wanted = wanted
        self.variants: tuple[Variant, ...] = ()
        self.done: list[VariantStatus] = []
        self.error = ""
        self._keep = keep
        self._plans = Plans(
            cache,
            wanted.backend,
            release=wanted.release,
            # A server answers all the same; what it does with a failure is for who asks for it.
            on_failure=OnFailure.FALLBACK if keep else OnFailure.REFUSE,
            key_limit=1 << 30,
        )
        self._lock = threading.Lock()
        self._plan: Plan | None = None
        self._graph = ""

    @property
    def state(self) -> State:
        if self.error or any(each.result == _FAILED for each in self.done):
            return State.FAILED
        if not self.variants:
            return State.WAITING
        return State.READY if len(self.done) == len(self.variants) else State.WARMING

    def open(self) -> Plan:
        """The plan, without anything loaded. What is raised is noted as well."""
        with self._lock:
            if self._plan is None:
                try:
                    plan = self._plans.open(self.wanted.path, self.wanted.shapes)
                    self.variants = plan.variants()
                except (TrivetError, OSError) as error:
                    self.error = _text(error)
                    raise
                self._plan, self.error = plan, ""
            return self._plan

    def prepare(self, variant: Variant) -> None:
        """Get a variant ready, and note what came of it."""
        started = time.perf_counter()
        try:
            told = self._prepared(variant)
        except Exception as error:  # noqa: BLE001  a framework may say anything; it must be told
            told = VariantStatus(shapes=str(variant), result=_FAILED, error=_text(error))
        seconds = round(time.perf_counter() - started, 6)
        self.done.append(msgspec.structs.replace(told, seconds=seconds))

    def _prepared(self, variant: Variant) -> VariantStatus:
        # A plan of its own for each variant where nobody needs it: all together fill the memory.
        plan = self.open() if self._keep else self._plans.open(self.wanted.path, self.wanted.shapes)
        loaded = plan.prepare(variant)[0]
        structure = part(loaded.key, "graph", "structure")
        self._graph = structure.hex()[:16] if isinstance(structure, bytes) else ""
        phases = sums(loaded.phases)
        if self._keep:
            began = time.perf_counter()
            _run_once(loaded, canary.canary_inputs(plan.inputs, variant.shapes))
            phases["first run"] = round((time.perf_counter() - began) * 1e3, 3)
        return VariantStatus(
            shapes=str(variant),
            result=_FAILED if _has_failed(loaded) else str(loaded.source),
            reason=loaded.reason,
            error=loaded.error,
            key=loaded.key.digest.hex(),
            phases=phases,
            size=loaded.artifact.descriptor.size if loaded.artifact is not None else 0,
        )

    def status(self, activity: Sequence[PlanUse], now: float) -> ModelStatus:
        return ModelStatus(
            name=self.wanted.name,
            model=str(self.wanted.path),
            backend=self.wanted.backend.name,
            required=self.wanted.required,
            state=self.state,
            error=self.error,
            total=len(self.variants),
            variants=list(self.done),
            coverage=self._coverage(activity, now),
        )

    def _coverage(self, activity: Sequence[PlanUse], now: float) -> Coverage | None:
        if not self._graph:
            return None
        uses = recent_uses(activity, self._graph, self.wanted.backend.name, now)
        warmed = [each.shapes for each in self.done if each.result != _FAILED]
        observed = self._plan.observed if self._plan is not None else None
        return covered(warmed, uses, observed)


def _run_once(loaded: Loaded, inputs: Arrays | None) -> None:
    """Run it where inputs can be made up. Raises what the framework says of inputs that were fine
    when the plan was made: requests would hear the same."""
    if inputs is None:
        return
    try:
        loaded.executable.run(inputs)
    except MemoryError:
        raise
    except Exception:
        if loaded.artifact is not None and canary.is_kept(loaded.artifact.verify()):
            raise


def _has_failed(loaded: Loaded) -> bool:
    """Whether it runs uncompiled for want of a plan, and not because none is worth keeping."""
    error_class = loaded.error.partition(":")[0]
    return loaded.source is Source.UNCOMPILED and recorded_reason(error_class) != NOT_WORTH_KEEPING


def _failures(model: ModelStatus) -> list[str]:
    told = [f"{model.name}: {model.error}"] if model.error else []
    return told + [
        f"{model.name} {each.shapes}: {each.error}"
        for each in model.variants
        if each.result == _FAILED
    ]


def _alarms(model: ModelStatus) -> list[str]:
    told = [] if model.required else [f"{each} (not required)" for each in _failures(model)]
    coverage = model.coverage
    if coverage is None or model.state not in (State.READY, State.FAILED):
        return told
    told += [f"{model.name} {each} is asked for and not warmed" for each in coverage.missing]
    return told + [
        f"{model.name}: requests of {each} lie outside the shape rules" for each in coverage.outside
    ]


def _text(error: BaseException) -> str:
    return error.message if isinstance(error, TrivetError) else f"{type(error).__name__}: {error}"
