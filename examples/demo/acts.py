"""The acts of the demo: start cold and warm, swap the weights, flip bits, start eight at once."""

from __future__ import annotations

import os
import random
import shutil
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from examples.demo.client import Outcome, ask, storm
from examples.demo.jobs import Job, read_answer, same_answer
from examples.demo.ways import WAYS
from examples.models import swap_weights

FLIPS = 64
Row = dict[str, Any]
Tick = Callable[[str], None]


class Stage:
    """One model, its file on stage, and a cache folder for each way."""

    def __init__(
        self, job: Job, original: Path, folder: Path, ways: Iterable[str] = tuple(WAYS)
    ) -> None:
        self.job = job
        self.original = original
        self.model = folder / "model" / original.name
        self.model.parent.mkdir(parents=True)
        self.caches = folder / "caches"
        self.restore()
        self.rows: dict[str, Row] = {way: {} for way in ways}

    def restore(self) -> None:
        """Put the original model back, old mtime and all."""
        shutil.copy2(self.original, self.model)

    def cache(self, way: str) -> Path:
        """The cache folder of one way."""
        return self.caches / way

    def ask(self, way: str) -> Outcome:
        """One new process."""
        return ask(way, self.job, self.model, self.cache(way))

    def truth(self, way: str) -> Outcome:
        """What the way's backend answers without any cache."""
        return self.ask(f"{way.split('-')[0]}-plain")


def starts(stage: Stage, repeats: int, tick: Tick) -> None:
    """Cold once, then warm: new processes, the ways in turn so that noise hits all of them."""
    for way, row in stage.rows.items():
        tick(f"cold: {WAYS[way].backend}, {WAYS[way].title}")
        outcome = stage.ask(way)
        row["cold_s"] = outcome.seconds
        row["answer"] = _read(stage, outcome)
    warm: dict[str, list[float]] = {way: [] for way in stage.rows}
    for _ in range(repeats):
        for way in stage.rows:
            tick(f"warm: {WAYS[way].backend}, {WAYS[way].title}")
            warm[way].append(stage.ask(way).seconds)
    for way, row in stage.rows.items():
        row["warm_s"] = statistics.median(warm[way])


def swap(stage: Stage, tick: Tick) -> None:
    """Other weights under the same path, size and mtime. Who still gives the old answer?"""
    swap_weights(stage.model)
    truths: dict[str, Outcome] = {}
    for way, row in stage.rows.items():
        tick(f"weights swapped: {WAYS[way].backend}, {WAYS[way].title}")
        outcome = stage.ask(way)
        if not WAYS[way].caches:
            truths[WAYS[way].backend] = outcome
            row["swap"] = "right"
            continue
        row["swap"] = _verdict(stage.job, outcome, truths[WAYS[way].backend], wrong="old answer")
        row["swap_answer"] = _read(stage, outcome)
    stage.restore()


def flip(stage: Stage, tick: Tick) -> None:
    """Flip bits of the stored weights, as bad memory or a bad disk does. Who notices?"""
    for way, row in stage.rows.items():
        if not WAYS[way].caches:
            continue
        tick(f"bits flipped: {WAYS[way].backend}, {WAYS[way].title}")
        shutil.rmtree(stage.cache(way), ignore_errors=True)
        before = stage.ask(way)
        flip_bits(stage.cache(way), FLIPS)
        outcome = stage.ask(way)
        verdict = _verdict(stage.job, outcome, before, wrong="wrong answer")
        if verdict == "right":
            verdict = "recompiled" if outcome.compiled else "not noticed"
        row["flip"] = verdict
        row["flip_answer"] = _read(stage, outcome)


def flip_bits(folder: Path, count: int) -> None:
    """Flip ``count`` bits, drawn with a fixed seed, in each large file of a cache folder.

    Only in the middle half, which is weights in every way's files: most bytes are weights, and a
    flip in the graph around them makes a file unreadable, which is easy to notice.
    """
    files = sorted(each for each in folder.rglob("*") if each.is_file() and not each.is_symlink())
    largest = max(each.stat().st_size for each in files)
    targets = [each for each in files if each.stat().st_size * 10 >= largest]
    draw = random.Random(0)
    for path in targets:
        mode = path.stat().st_mode
        path.chmod(0o600)
        with path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            for _ in range(count):
                at = draw.randrange(size // 4, size * 3 // 4)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << draw.randrange(8)]))
        path.chmod(mode)


def eight(stage: Stage, count: int, tick: Tick) -> None:
    """Many processes on an empty cache. How many of them compile, and do all of them live?"""
    for way, row in stage.rows.items():
        if not WAYS[way].caches:
            continue
        tick(f"{count} at once: {WAYS[way].backend}, {WAYS[way].title}")
        shutil.rmtree(stage.cache(way), ignore_errors=True)
        seconds, outcomes = storm(way, stage.job, stage.model, stage.cache(way), count)
        truth = stage.truth(way)
        row["storm_s"] = seconds
        row["storm_compiles"] = sum(each.compiled for each in outcomes)
        row["storm_died"] = [each.died for each in outcomes if each.answer is None]
        row["storm_wrong"] = sum(
            _verdict(stage.job, each, truth, wrong="wrong") == "wrong" for each in outcomes
        )


def _verdict(job: Job, outcome: Outcome, truth: Outcome, *, wrong: str) -> str:
    if outcome.answer is None:
        return f"died: {outcome.died}"
    assert truth.answer is not None
    return "right" if same_answer(outcome.answer, truth.answer) else wrong


def _read(stage: Stage, outcome: Outcome) -> str:
    if outcome.answer is None:
        return ""
    return read_answer(stage.job, outcome.answer, stage.original)
