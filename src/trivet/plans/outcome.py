"""The plain data of loading: what is wanted, how, and what came of it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from trivet.cache import Artifact
from trivet.keys import Key
from trivet.plans.backend import Executable
from trivet.plans.model import Dimension, GraphId
from trivet.plans.report import Phase


class Source(enum.StrEnum):
    """Where an executable came from."""

    CACHE = "cache"
    COMPILED = "compiled"
    UNCOMPILED = "uncompiled"


class OnFailure(enum.StrEnum):
    """What to do where a plan can't be made."""

    FALLBACK = "fallback"  # run the model uncompiled
    REFUSE = "refuse"  # raise `PlanFailed`


class CanaryMode(enum.StrEnum):
    """When a loaded plan's canary is run. A plan that is being made is always checked."""

    FIRST = "first"  # at its first load on this machine
    ALWAYS = "always"
    NEVER = "never"


class LoadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's choices; see `Plans`."""

    on_failure: OnFailure
    canary: CanaryMode
    wait: float
    failure_lifetime: float


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One variant of one model on one backend.

    Attributes:
        bound_weights: digest of the weights that are bound at loading; empty where the plan holds
            them itself.
        bound: key with this machine's instruction set.
        portable: key of a plan that holds for every machine of the architecture.
        keepable: False where the instruction set can't be told, so that nothing bound to it may be
            kept.
        key_now: ``bound``, made again of what can change while a plan is compiled: environment,
            settings, libraries and compilers. Raises as `Backend.key_fields`.
    """

    model: Path
    graph: GraphId
    bound_weights: bytes = b""
    shapes: Mapping[str, tuple[Dimension, ...]]
    bound: Key
    portable: Key
    keepable: bool
    key_now: Callable[[], Key]
    tags: tuple[str, ...]
    group: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """An executable, where it came from, and why it had to be made (empty for a hit).

    ``phases`` says where the time went.
    """

    executable: Executable
    source: Source
    key: Key
    reason: str = ""
    error: str = ""
    artifact: Artifact | None = None  # holds the files of a plan that could not be stored
    phases: tuple[Phase, ...] = ()
