"""The plain data of an audit: a probe, what it saw, and the verdicts."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from trivet.errors import TrivetError

if TYPE_CHECKING:
    from trivet.audit.stage import Stage


class Own(enum.StrEnum):
    """What the framework's own cache did."""

    WRONG = "wrong"  # something wrong was served without a word
    UNVERIFIED = "unverified"  # it served what it could not vouch for, and the numbers were right
    FAILS = "fails"  # the program got an error, or died
    NOT_HEALED = "not healed"  # every later start pays
    WASTEFUL = "wasteful"  # it computes again what was there
    NOT_REPRODUCED = "not reproduced"  # mended, or not to be seen on this machine
    NOT_RUN = "not run"


class Guarded(enum.StrEnum):
    """What the same program did under Trivet."""

    RIGHT = "right"  # right numbers, and what could be reused was
    WRONG = "wrong"
    NO_BETTER = "no better"  # right or an error, but the guard did not help
    NOT_RUN = "not run"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe saw: verdicts, each with its evidence in words and numbers."""

    own: Own
    own_evidence: str
    guarded: Guarded
    guarded_evidence: str


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to try.

    Attributes:
        id: also the name of its page in the documentation.
        framework: whose cache is tried.
        title: what is set up.
        run: does it. Raises `NotRun` where this machine or version doesn't allow it.
    """

    id: str
    framework: str
    title: str
    run: Callable[[Stage], Result]

    @property
    def page(self) -> str:
        """Its page, relative to the root of the repository."""
        return f"docs/explanation/audit/{self.id}.md"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one probe. ``seconds`` is what it took."""

    id: str
    framework: str
    version: str
    title: str
    page: str
    own: Own
    own_evidence: str
    guarded: Guarded
    guarded_evidence: str
    seconds: float


class NotRun(TrivetError):
    """A probe can't be tried here; the message says why."""


class GuardFailed(TrivetError):
    """A guarded step of a probe ended otherwise than it should; the message says how."""
