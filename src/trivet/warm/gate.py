"""The gate before a release: every model of a plan file, tested with what is installed now.

Each model has a process of its own, so that one that crashes a compiler or hangs costs only itself.
What was made is looked for by a second process: a plan that only its maker can find is no plan.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from trivet import __version__
from trivet.cache.place import user_folder
from trivet.plans.activity import Activity, PlanUse
from trivet.warm.coverage import covered, recent_uses
from trivet.warm.gate_child import Finished, Job, Opened, Refused, Reported, Told
from trivet.warm.isolate import Ended, run_isolated
from trivet.warm.planfile import ModelEntry, Wanted
from trivet.warm.report import (
    CACHE,
    COMPILED,
    FAILED,
    NOT_RUN,
    GateReport,
    TargetReport,
    VariantReport,
)

TIMEOUT = 1800.0
_MODULE = "trivet.warm.gate_child"
_decode = msgspec.json.Decoder(Told).decode

Progress = Callable[[float, str], None]  # models done, the one that is being tested


def run_gate(
    plan_file: Path,
    wanted: Sequence[Wanted],
    cache: Path | None,
    *,
    shared: Sequence[str] = (),
    layers: Sequence[Path] = (),
    timeout: float = TIMEOUT,
    jobs: int = 1,
    progress: Progress = lambda done, what: None,
) -> GateReport:
    """Test every model of a plan file.

    Args:
        plan_file, wanted: the file, and what `read_plan_file` made of it.
        cache: the cache folder; None for the user's own.
        shared, layers: as for `Cache.open`. What is made here is stored for all hosts, and what
            answers differently is forgotten there as well.
        timeout: seconds for a model for which the file says nothing else.
        jobs: models that are tested at the same time. Compilers take all cores and a lot of memory.
        progress: called now and then, from several threads.

    Raises nothing for what is wrong with a model: the report says it.
    """
    counter = _Counter(progress)
    stop = threading.Event()

    def test(each: Wanted) -> TargetReport:
        entry = each.entry or ModelEntry(path=str(each.path))
        job = Job(
            entry=entry,
            folder=os.fspath(plan_file.parent.absolute()),
            release=each.release,
            name=each.name,
            cache=os.fspath(cache.absolute()) if cache is not None else "",
            shared=list(shared),
            layers=[os.fspath(folder.absolute()) for folder in layers],
        )
        return _Target(each, job, entry.timeout or timeout, counter, stop).test()

    with ThreadPoolExecutor(jobs) as pool:
        try:
            targets = list(pool.map(test, wanted))
        except BaseException:
            stop.set()  # nobody is interested any more
            pool.shutdown(cancel_futures=True)
            raise
    now = time.time()
    activity = list(Activity(cache or user_folder()))
    return GateReport(
        trivet=__version__,
        created=now,
        plan=plan_file.name,
        targets=[_with_coverage(each, activity, now) for each in targets],
    )


def _with_coverage(target: TargetReport, activity: Sequence[PlanUse], now: float) -> TargetReport:
    """With what this host's programs asked for, as far as its log remembers."""
    keyed = next((each for each in target.variants if each.fields), None)
    if keyed is None:
        return target
    graph = str(keyed.fields["graph"]["structure"])[:16]
    uses = recent_uses(activity, graph, target.backend, now)
    coverage = covered([each.shapes for each in target.variants], uses)
    return msgspec.structs.replace(target, coverage=coverage)


class _Counter:
    """Adds up what many threads have done."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done = 0.0
        self._lock = threading.Lock()

    def add(self, part: float, what: str) -> None:
        """``part`` of a model was done."""
        with self._lock:
            self._done += part
            self._progress(self._done, what)


class _Target:
    """One model on its way through the gate."""

    def __init__(
        self,
        wanted: Wanted,
        job: Job,
        timeout: float,
        counter: _Counter,
        stop: threading.Event,
    ) -> None:
        self._wanted = wanted
        self._job = job
        self._timeout = timeout
        self._counter = counter
        self._stop = stop

    def test(self) -> TargetReport:
        """Examine all variants, then have a new process find those that were made."""
        started = time.monotonic()
        self._deadline = started + self._timeout
        self._counter.add(0.0, self._wanted.name)
        first = self._run(self._job)
        variants = first.variants
        made = [each.shapes for each in variants if each.result == COMPILED]
        memory, error, hint = first.memory, first.error, first.hint
        if made:
            second = self._run(msgspec.structs.replace(self._job, again=made))
            memory = max(memory, second.memory)
            found = {each.shapes: each for each in second.variants}
            variants = [
                each
                if each.result != COMPILED
                else _confirmed(each, found.get(each.shapes), second)
                for each in variants
            ]
        self._counter.add(1.0 - first.counted, self._wanted.name)
        return TargetReport(
            name=self._wanted.name,
            model=str(self._wanted.path),
            backend=self._wanted.backend.name,
            required=self._wanted.required,
            error=error,
            hint=hint,
            seconds=round(time.monotonic() - started, 3),
            memory=memory,
            variants=variants,
        )

    def _run(self, job: Job) -> _Heard:
        """One process; what was heard of it, with what it did not get to."""
        heard = _Heard(self._counter, self._wanted.name, counts=job.again is None)
        left = max(0.01, self._deadline - time.monotonic())
        ended = run_isolated(_MODULE, job, heard.line, seconds=left, stop=self._stop)
        if ended.timed_out:  # of the whole time, not of what was left of it
            ended = Ended(trouble=f"took longer than {self._timeout:g} s", timed_out=True)
        heard.end(ended)
        return heard


class _Heard:
    """What a process has told so far."""

    def __init__(self, counter: _Counter, name: str, *, counts: bool) -> None:
        self.variants: list[VariantReport] = []
        self.error = self.hint = ""
        self.memory = 0
        self.counted = 0.0
        self._counter = counter
        self._name = name
        self._counts = counts
        self._expected: list[str] | None = None
        self._finished = False

    def line(self, raw: bytes) -> None:
        """One message."""
        told = _decode(raw)
        if isinstance(told, Opened):
            self._expected = told.variants
        elif isinstance(told, Reported):
            self.variants.append(told.variant)
            self._count()
        elif isinstance(told, Refused):
            self.error, self.hint = told.error, told.hint
        elif isinstance(told, Finished):
            self.memory, self._finished = told.memory, True

    def _count(self) -> None:
        if self._counts and self._expected:
            part = 0.9 / len(self._expected)  # the rest is for the second process
            self.counted += part
            done = f"{self._name} {len(self.variants)} of {len(self._expected)}"
            self._counter.add(part, done)

    def end(self, ended: Ended) -> None:
        """The process is gone. What it was at is to blame, and what comes after was not run."""
        trouble, hint = ended.trouble, ended.hint
        if not trouble and not self._finished and not self.error:
            trouble = "its process ended before it was done"
        if trouble and not self.error:
            self.error, self.hint = trouble, hint
        known = {each.shapes for each in self.variants}
        missing = [each for each in self._expected or () if each not in known]
        for number, shapes in enumerate(missing):
            at_it = number == 0 and bool(trouble)
            self.variants.append(
                VariantReport(
                    shapes=shapes,
                    result=FAILED if at_it else NOT_RUN,
                    error=trouble if at_it else "the process was gone before it",
                    hint=hint if at_it else "",
                )
            )


def _confirmed(made: VariantReport, found: VariantReport | None, second: _Heard) -> VariantReport:
    """A variant that was made, with what a second process said of it."""
    if found is not None and found.result == CACHE and found.key == made.key:
        return made
    hint = second.hint
    if found is None or found.result == NOT_RUN:
        error = second.error or "the process was gone before it"
    elif found.error:
        error, hint = found.error, found.hint
    else:
        error = f"it is not there ({found.reason or 'another key'})"
        hint = "'trivet doctor' names values in the key that change from start to start"
    return msgspec.structs.replace(
        made,
        result=FAILED,
        error=f"a second process could not use what was made: {error}",
        hint=hint,
    )
