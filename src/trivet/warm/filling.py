"""Filling a cache folder from another one, or with results that were computed elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from trivet.cache.fill import Filled
from trivet.warm.filling_child import Job, SourceError, Told, run
from trivet.warm.isolate import run_isolated

_MODULE = "trivet.warm.filling_child"
_A_WEEK = 7 * 86400.0  # it ends by itself
_decode = msgspec.json.Decoder(Told).decode

Progress = Callable[[int, int], object]


def fill(
    source: str | Path,
    *,
    memo: str = "",
    cache: str | Path = "",
    jobs: int = 1,
    progress: Progress | None = None,
) -> Filled:
    """Fill ``cache`` with the values in the folder ``source``; or a memo's cache with its results.

    One that was interrupted goes on where it was, if the source is the same and ``jobs`` is.

    Args:
        source: a cache folder; or, with ``memo``, a file of lines such as
            ``{"args": ["hello"], "value": [0.1], "cost": 0.05}``, and ``"named"`` for arguments by
            name.
        memo: ``module:name`` of a memoised function, which says what it returns.
        jobs: processes, each for a part.
        progress: told what is done and the total: entries, or bytes of a file.

    Raises:
        SourceError: the source can't be read, or is none.
        StoreError: the folder can't be written.
    """
    parts = [
        Job(source=str(Path(source).absolute()), memo=memo, cache=str(cache), part=part, parts=jobs)
        for part in range(jobs)
    ]
    heard = _Heard(jobs, progress)
    if jobs == 1:
        run(parts[0], lambda told: heard.tell(0, told))
        return heard.total()
    stop = threading.Event()

    def isolated(job: Job) -> None:
        def line(raw: bytes) -> None:
            heard.tell(job.part, _decode(raw))

        try:
            ended = run_isolated(_MODULE, job, line, seconds=_A_WEEK, stop=stop)
            if ended.trouble:
                heard.failed(ended.trouble, ended.hint)
        finally:
            if heard.error:
                stop.set()  # what the others have done is kept

    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(isolated, parts))
        finally:
            stop.set()
    if heard.error:
        raise SourceError(heard.error, hint=heard.hint or None)
    return heard.total()


class _Heard:
    """What the parts have told."""

    def __init__(self, parts: int, progress: Progress | None) -> None:
        self._last = [Told(filled=Filled())] * parts
        self._progress = progress
        self._lock = threading.Lock()
        self.error = self.hint = ""

    def tell(self, part: int, told: Told) -> None:
        with self._lock:
            if told.error:
                self.error, self.hint = self.error or told.error, self.hint or told.hint
                return
            self._last[part] = told
            if self._progress is not None:
                done, total = sum(t.done for t in self._last), sum(t.total for t in self._last)
                self._progress(done, total)

    def failed(self, error: str, hint: str) -> None:
        with self._lock:
            self.error, self.hint = self.error or error, self.hint or hint

    def total(self) -> Filled:
        names = Filled.__struct_fields__
        sums = {name: sum(getattr(told.filled, name) for told in self._last) for name in names}
        return Filled(**sums)
