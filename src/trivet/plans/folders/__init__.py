"""Frameworks' own compile caches, guarded: each under a key of ours, verified, shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.lazy import lazily

if TYPE_CHECKING:
    from trivet.plans.folders.effects import Effect
    from trivet.plans.folders.framework import CacheFolder
    from trivet.plans.folders.frameworks import KNOWN, declared
    from trivet.plans.folders.guard import Restored
    from trivet.plans.folders.inside import guarded
    from trivet.plans.folders.interpreter import Interpreter, interpreter_of
    from trivet.plans.folders.session import GuardedRun

__getattr__ = lazily(
    __name__,
    {
        "CacheFolder": "framework",
        "Effect": "effects",
        "GuardedRun": "session",
        "Interpreter": "interpreter",
        "KNOWN": "frameworks",
        "Restored": "guard",
        "declared": "frameworks",
        "guarded": "inside",
        "interpreter_of": "interpreter",
    },
)

__all__ = [
    "CacheFolder",
    "Effect",
    "GuardedRun",
    "Interpreter",
    "KNOWN",
    "Restored",
    "declared",
    "guarded",
    "interpreter_of",
]
