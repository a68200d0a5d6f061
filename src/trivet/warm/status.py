"""How far a warm-up is, as plain data."""

from __future__ import annotations

import enum

import msgspec

from trivet.warm.coverage import Coverage


class State(enum.StrEnum):
    """Of a warm-up, or of one model in it."""

    WAITING = "waiting"  # not begun
    WARMING = "warming"
    READY = "ready"
    FAILED = "failed"


class VariantStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One variant that is done.

    Attributes:
        result: ``cache``, ``compiled``, ``uncompiled`` (not worth keeping) or ``failed``.
        reason: why it was not found. error: why it failed, or is not kept.
        key: digest of the plan's key. seconds: until it was ready, or had failed.
        phases: wall milliseconds by phase of `StartReport`. size: of its files, in bytes.
    """

    shapes: str
    result: str
    reason: str = ""
    error: str = ""
    key: str = ""
    seconds: float = 0.0
    phases: dict[str, float] = {}
    size: int = 0


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model. ``total`` is the number of its variants, 0 while that is not known."""

    name: str
    model: str
    backend: str
    required: bool
    state: State
    error: str
    total: int
    variants: list[VariantStatus]
    coverage: Coverage | None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Attributes:
        done, total: variants.
        now: what is being got ready; empty when nothing is.
        seconds: since the start, until the end.
        failures: what failed and is required. alarms: what else somebody should look at.
    """

    state: State
    done: int
    total: int
    now: str
    seconds: float
    failures: list[str]
    alarms: list[str]
    models: list[ModelStatus]
