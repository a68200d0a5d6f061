"""Probes of JAX: its persistent compilation cache, and serialised executables."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from trivet.audit import judge
from trivet.audit.child import Answer, Child
from trivet.audit.finding import Guarded, NotRun, Own, Probe, Result
from trivet.audit.models import flip_bit, largest
from trivet.audit.stage import Stage

_PROCESSES = 4
_FLIPS = 8
_CUT = 20  # bytes


def _own(stage: Stage, folder: Path) -> Answer:
    return stage.run("jax:answer", environment=_variables(folder))


def _variables(folder: Path) -> dict[str, str]:
    """JAX's cache as its documentation switches it on, also for what compiles quickly."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def _filled(stage: Stage, folder: Path) -> int:
    """Fill the cache in ``folder``; how many entries a later start is to find there."""
    first, second = _own(stage, folder), _own(stage, folder)
    if not first["misses"] or not second["hits"]:
        raise NotRun("JAX keeps nothing of this program, so there is nothing to try")
    return int(second["hits"])


def _guarded(answers: list[Answer], right: list[float], misses: list[bool]) -> tuple[Guarded, str]:
    """Judge starts under ``trivet exec``, of which some are to compile and others not to."""
    told = []
    verdict = Guarded.RIGHT
    for answer, is_miss in zip(answers, misses, strict=True):
        if answer.error:
            return Guarded.NO_BETTER, answer.error
        told.append(f"{answer['hits']} hits and {answer['misses']} misses")
        if not judge.is_right(answer.numbers, right):
            return Guarded.WRONG, judge.off(answer.numbers, right)
        if bool(answer["misses"]) != is_miss or bool(answer["hits"]) == is_miss:
            verdict = Guarded.NO_BETTER
    return verdict, f"{', then '.join(told)}; right numbers"


def cut_entry(stage: Stage) -> Result:
    """An entry was written by a process that was killed, or on a disk that was full."""
    folder, cache = stage.folder("own"), stage.folder("cache")
    right = stage.run("jax:plain").numbers
    entries = _filled(stage, folder)
    stage.run_guarded(cache, "jax:answer")["y"]
    for each in (largest(folder, "*-cache"), largest(cache / "artifacts", "*-cache")):
        each.chmod(0o600)
        each.write_bytes(each.read_bytes()[:-_CUT])
    starts = [_own(stage, folder) for _ in range(3)]
    own, evidence = judge.served(starts[-1], right)
    missed = [int(each["misses"]) for each in starts if not each.error]
    if own is Own.NOT_REPRODUCED:
        evidence = f"3 starts after the damage missed {', '.join(map(str, missed))} of {entries}"
        own = Own.NOT_HEALED if missed[-1] else own
    told, seen = _guarded(
        [stage.run_guarded(cache, "jax:answer") for _ in range(2)], right, [True, False]
    )
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=seen)


def moved_folder(stage: Stage) -> Result:
    """The cache is copied to another path, as into an image or from a volume."""
    folder, cache = stage.folder("own"), stage.folder("cache")
    right = stage.run("jax:plain").numbers
    entries = _filled(stage, folder)
    stage.run_guarded(cache, "jax:answer")["y"]
    for each in (folder, cache):
        shutil.copytree(each, stage.root / "moved" / each.name)
        shutil.rmtree(each)
    found = _own(stage, stage.root / "moved" / folder.name)
    own, evidence = judge.served(found, right)
    if own is Own.NOT_REPRODUCED:
        evidence = f"{found['misses']} of {entries} missed"
        own = Own.WASTEFUL if found["misses"] else own
    told, seen = _guarded(
        [stage.run_guarded(stage.root / "moved" / cache.name, "jax:answer")], right, [False]
    )
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=seen)


def many_processes(stage: Stage) -> Result:
    """Several workers start at the same time on an empty cache."""
    folder, cache = stage.folder("own"), stage.folder("cache")
    right = stage.run("jax:plain").numbers
    place = str(stage.folder("together"))
    own = _results(
        stage.start("jax:answer", environment=_variables(folder), together=place, count=_PROCESSES)
        for _ in range(_PROCESSES)
    )
    compiled = sum(bool(each["misses"]) for each in own)
    guarded = _results(stage.start_guarded(cache, "jax:answer") for _ in range(_PROCESSES))
    failed = [each.error for each in guarded if each.error]
    if failed:
        told, seen = Guarded.NO_BETTER, failed[0]
    else:
        made = sum(bool(each["misses"]) for each in guarded)
        wrong = sum(not judge.is_right(each.numbers, right) for each in guarded)
        told = Guarded.RIGHT if made == 1 else Guarded.NO_BETTER
        told = Guarded.WRONG if wrong else told
        seen = f"{judge.counted(made)} compiled by {_PROCESSES} processes; {wrong} wrong"
    return Result(
        own=Own.WASTEFUL if compiled > 1 else Own.NOT_REPRODUCED,
        own_evidence=f"{_PROCESSES} processes compiled {judge.counted(compiled)}",
        guarded=told,
        guarded_evidence=seen,
    )


def serialized(stage: Stage) -> Result:
    """Bit rot in a serialised executable."""
    path, program, cache = stage.root / "plan", stage.root / "m.jaxexport", stage.folder("cache")
    right = stage.run("jax:plain").numbers
    size = stage.run("jax:serialize", path=path)["size"]
    stage.run("jax:export", path=program)["path"]
    whole = path.read_bytes()
    answers = []
    for number in range(_FLIPS):
        flip_bit(path, size * (2 * number + 1) // (2 * _FLIPS), bit=4)
        answers.append(stage.run("jax:deserialize", path=path))
        path.write_bytes(whole)
    crashes = [each.error for each in answers if each.crashed]
    refused = sum(bool(each.error) and not each.crashed for each in answers)
    given = [each for each in answers if not each.error]
    wrong = sum(not judge.is_right(each.numbers, right) for each in given)
    own = Own.WRONG if wrong else Own.FAILS if crashes else Own.NOT_REPRODUCED
    if own is Own.NOT_REPRODUCED and given:
        own = Own.UNVERIFIED
    plans = [_plan(stage, program, cache)]
    plan = largest(cache / "artifacts")
    flip_bit(plan, plan.stat().st_size // 2, bit=4)
    plans += [_plan(stage, program, cache) for _ in range(2)]
    told, seen = judge.guarded(plans, right, ["compiled", "compiled", "cache"])
    return Result(
        own=own,
        own_evidence=f"of {_FLIPS} flipped bits {wrong} gave other numbers, {len(crashes)} killed "
        f"the process, {refused} were refused, {len(given) - wrong} went unseen",
        guarded=told,
        guarded_evidence=seen,
    )


def _plan(stage: Stage, program: Path, cache: Path) -> Answer:
    return stage.run("guarded:answer", model=program, cache=cache, backend="Jax")


def _results(children: Iterable[Child]) -> list[Answer]:
    running = list(children)
    return [each.result() for each in running]


PROBES = (
    Probe(
        id="jax-cut-entry",
        framework="jax",
        title="an entry of the persistent cache is cut off",
        run=cut_entry,
    ),
    Probe(
        id="jax-moved-folder",
        framework="jax",
        title="the folder of the persistent cache is moved",
        run=moved_folder,
    ),
    Probe(
        id="jax-many-processes",
        framework="jax",
        title="four processes start on an empty cache",
        run=many_processes,
    ),
    Probe(
        id="jax-serialized-executable",
        framework="jax",
        title="a bit of a serialised executable is flipped",
        run=serialized,
    ),
)
