"""What the processes of a run wrote down: frameworks' counters, and what each has loaded."""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

_PATIENCE = 1.0  # seconds
_LIMIT = 64 << 20  # bytes of a report; of a large program it has some ten thousand


class Counters(msgspec.Struct, kw_only=True):
    """What a framework's cache did in all processes of a run.

    Attributes:
        hits, misses, bypasses: look-ups of compiled graphs.
        compile_seconds: spent compiling. saved_seconds: that hits spared, where it is known.
    """

    hits: int = 0
    misses: int = 0
    bypasses: int = 0
    compile_seconds: float = 0.0
    saved_seconds: float = 0.0

    @property
    def used(self) -> bool:
        """Whether the framework compiled or looked anything up."""
        return bool(self.hits or self.misses or self.bypasses or self.compile_seconds)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one process wrote down, before anything it made got into a folder.

    Attributes:
        folders: each folder that it had, to what was loaded while it had it: absolute paths.
        now: the folders that it has now.
        own: those of the paths that no package installed.
        doubt: why something may have been made by what is not in here.
        torch, jax, vllm: counters of the frameworks.
    """

    folders: Mapping[str, list[str]] = {}
    now: list[str] = []
    own: list[str] = []
    doubt: str = ""
    torch: dict[str, float] = {}
    jax: dict[str, float] = {}
    vllm: dict[str, float] = {}


class Reports:
    """The folder that the hook writes to, and what is in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[Report]:
        """Of every process so far."""
        reports = []
        for path in self._folder.glob("*.json"):
            try:
                # Not msgspec's decoder: names of files may be no Unicode.
                reports.append(msgspec.convert(json.loads(_read(path)), type=Report))
            except (OSError, ValueError, RecursionError) as error:
                reports.append(Report(doubt=f"what process {path.stem} loaded is lost: {error}"))
        return reports

    def doubt(self, processes: set[str]) -> str:
        """Why not everything is known that a folder depends on; empty when it is.

        ``processes`` are those that it was given to. Each writes its first report as soon as it
        has the answer.
        """
        until = time.monotonic() + _PATIENCE
        silent = self._silent(processes)
        while silent and time.monotonic() < until:
            time.sleep(0.01)
            silent = self._silent(processes)
        for name in (*silent, *(each.name for each in self._folder.glob("*.broken"))):
            return f"process {name.partition('-')[0]} did not write down what it loaded"
        return next((each.doubt for each in self.all() if each.doubt), "")

    def _silent(self, processes: set[str]) -> list[str]:
        return [each for each in sorted(processes) if not (self._folder / f"{each}.json").exists()]


def _read(path: Path) -> bytes:
    """The program can put anything there, also what never ends to be read. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LIMIT:
            raise OSError(f"{path.name} is not a report file of a process")
        return file.read(_LIMIT)


def counters_of(
    reports: list[Report], framework: str, folder: str, filled: Mapping[str, bool]
) -> Counters | None:
    """A framework's counters over the processes that use ``folder``; None where none counts.

    ``filled`` says of each of the framework's folders whether anything is in it: vLLM goes on with
    the folder that it found in the environment first, also when there is another by now.
    """
    add = _COUNTED.get(framework)
    if add is None:
        return None
    total = None
    for each in reports:
        written: Mapping[str, float] = getattr(each, framework)
        told = {name: number for name, number in written.items() if math.isfinite(number)}
        if told and folder == _in_use(each, filled):
            total = total or Counters()
            add(total, told)
    return total


def _in_use(report: Report, filled: Mapping[str, bool]) -> str | None:
    now = next((name for name in report.now if name in filled), None)
    if now is None or filled[now]:
        return now
    return next((name for name in reversed([*report.folders]) if filled.get(name)), now)


def _add_torch(total: Counters, told: Mapping[str, float]) -> None:
    # A graph may be found in the outer cache, in the inner one, or in the inner one by way of the
    # outer: never counted twice.
    total.hits += int(max(told.get("autograd_cache_hit", 0), told.get("fxgraph_cache_hit", 0)))
    total.misses += int(told.get("fxgraph_cache_miss", 0))
    total.bypasses += int(told.get("fxgraph_cache_bypass", 0))
    total.compile_seconds += told.get("compile_seconds", 0.0)


def _add_jax(total: Counters, told: Mapping[str, float]) -> None:
    total.hits += int(told.get("cache_hits", 0))
    total.misses += int(told.get("cache_misses", 0))
    total.saved_seconds += told.get("compile_time_saved_sec", 0.0)


def _add_vllm(total: Counters, told: Mapping[str, float]) -> None:
    # Whole models, and where vLLM splits them, parts of models.
    total.hits += int(told.get("num_aot_artifacts_loaded", 0))
    total.hits += int(told.get("num_compiled_artifacts_loaded", 0))
    total.misses += int(told.get("num_aot_compiles", 0) or told.get("num_inductor_compiles", 0))


_COUNTED = {"torch": _add_torch, "jax": _add_jax, "vllm": _add_vllm}
