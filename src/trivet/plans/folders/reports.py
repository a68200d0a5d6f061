"""What the processes of a run reported: frameworks' counters, and who implements operators."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

HOOK = Path(__file__).parent / "hook"
REPORTS_VARIABLE = "TRIVET_EXEC_REPORTS"


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
        return bool(self.hits or self.misses or self.bypasses)


class _Report(msgspec.Struct):
    torch: dict[str, float] = {}
    jax: dict[str, float] = {}
    implementations: list[str] = []


class Reports:
    """The folder that the hook writes to, and what is in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What leads every Python of the run to the hook."""
        before = environment.get("PYTHONPATH")
        return {
            "PYTHONPATH": f"{HOOK}{os.pathsep}{before}" if before else str(HOOK),
            REPORTS_VARIABLE: str(self.folder),
        }

    def counters(self) -> dict[str, Counters]:
        """By framework, over all processes that have reported; empty where none has."""
        found: dict[str, Counters] = {}
        for each in self._all():
            if each.torch:
                _add_torch(found.setdefault("torch", Counters()), each.torch)
            if each.jax:
                _add_jax(found.setdefault("jax", Counters()), each.jax)
        return found

    def implementations(self) -> set[str]:
        """Files that implement operators, by absolute path."""
        return {path for each in self._all() for path in each.implementations}

    def _all(self) -> list[_Report]:
        reports = []
        for path in self.folder.glob("*.json"):
            try:
                # Not msgspec's decoder: names of files may be no Unicode.
                reports.append(msgspec.convert(json.loads(path.read_bytes()), type=_Report))
            except (OSError, ValueError, msgspec.MsgspecError):
                continue
        return reports


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
