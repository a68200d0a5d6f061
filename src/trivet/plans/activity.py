"""What happened to plans on this host, over all processes: one line of JSON per load.

The file lies in the cache folder. Lines are appended with one write each, so that processes don't
mix theirs; a file that grows past its limit becomes the older half, and the half before is dropped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

OUTSIDE = "outside"  # `PlanUse.source` of a request that the shape rules don't take
KEY_LIMIT = 64  # distinct keys of one model above which its shapes don't converge
_LIMIT_BYTES = 4 << 20


class PlanUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One variant got ready, or failed to; or requests came that the shape rules don't take.

    ``time`` is seconds since the epoch; ``seconds`` is the time from the call until the plan was
    ready, ``compile_seconds`` the part of it spent compiling; ``trivet`` is the version of this
    package.
    """

    time: float
    model: str
    graph: str
    backend: str
    bucket: str
    source: str
    key: str
    reason: str = ""
    error: str = ""
    release: str = ""
    trivet: str = ""
    seconds: float = 0.0
    compile_seconds: float = 0.0

    @property
    def is_load(self) -> bool:
        """Whether a variant was got ready; else ``bucket`` are the shapes of a request outside."""
        return self.source != OUTSIDE


class Activity:
    """The log of one cache folder."""

    def __init__(self, root: Path) -> None:
        self._path = root / "activity.jsonl"
        self._older = root / "activity.1.jsonl"

    def append(self, use: PlanUse) -> None:
        """Add a line. A folder that can't be written is no reason to fail."""
        try:
            line = msgspec.json.encode(use) + b"\n"
        except UnicodeEncodeError:  # names of files need not be Unicode
            line = msgspec.json.encode({k: _text(v) for k, v in _fields(use)}) + b"\n"
        with contextlib.suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, line)
                full = os.fstat(fd).st_size > _LIMIT_BYTES
            finally:
                os.close(fd)
            if full:
                self._path.replace(self._older)

    def __iter__(self) -> Iterator[PlanUse]:
        """All lines that can be read, the oldest first."""
        for path in (self._older, self._path):
            try:
                raw = path.read_bytes()
            except OSError:
                continue
            for line in raw.splitlines():
                with contextlib.suppress(msgspec.MsgspecError):
                    yield msgspec.json.decode(line, type=PlanUse)


def _fields(use: PlanUse) -> Iterable[tuple[str, str | float]]:
    return msgspec.structs.asdict(use).items()


def _text(value: str | float) -> str | float:
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
