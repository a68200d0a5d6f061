"""Frameworks' own compile caches, guarded: each under a key of ours, verified, shared."""

from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.frameworks import KNOWN, declared
from trivet.plans.folders.guard import Restored
from trivet.plans.folders.interpreter import Interpreter, interpreter_of
from trivet.plans.folders.session import Effect, GuardedRun

__all__ = [
    "KNOWN",
    "CacheFolder",
    "Effect",
    "GuardedRun",
    "Interpreter",
    "Restored",
    "declared",
    "interpreter_of",
]
