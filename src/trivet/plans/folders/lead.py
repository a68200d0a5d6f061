"""Leading a run: its folder, its requests, and a guard that is made when the first one comes.

Most of what a program starts never compiles anything. Until a process asks, nothing is opened,
read or imported for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trivet.plans.folders.requests import Requests
from trivet.plans.folders.runfolder import RunFolder

if TYPE_CHECKING:
    from trivet.plans.folders.session import GuardedRun

_AT_THE_END = 5.0  # seconds for what is still being answered
_GRACE = 0.3  # seconds for helpers of a program to follow it
Make = Callable[[Path, int], "GuardedRun"]


class Lead:
    """What a command keeps while its program runs.

    Args:
        parent: where the folder of the run is made.
        make: makes the guard, of the run's folder and the time of the start in nanoseconds.
        root: the cache folder, if there is one.

    Attributes:
        run: the guard, None as long as nobody has asked.
    """

    def __init__(self, parent: Path, make: Make, root: Path | None) -> None:
        """Raises `OSError`."""
        self._root = root
        self.run: GuardedRun | None = None
        self._make = make
        self._making = threading.Lock()
        self._failed = ""
        self._started = time.time_ns()
        self._folder = RunFolder(parent)
        try:
            self._requests = Requests(self._folder.path)
        except OSError:
            self._folder.close()
            raise

    def environment(self, given: Mapping[str, str], *, declared: bool = False) -> dict[str, str]:
        """What the program is given for ``given``."""
        return self._folder.environment(given, declared=declared)

    def begin(self) -> GuardedRun | None:
        """The guard, made if it is not there. None where it can't be made; see `failed`."""
        with self._making:
            if self.run is None and not self._failed:
                try:
                    self.run = self._make(self._folder.path, self._started)
                except Exception as error:  # noqa: BLE001  told, and the program goes on without
                    self._failed = str(error) or type(error).__name__
            return self.run

    @property
    def failed(self) -> str:
        """Why there is no guard though it was asked for; else empty."""
        return self._failed

    def serve(self, patience: float) -> None:
        """Take one request, if one comes within ``patience`` seconds."""
        self._requests.serve(self._answer, patience)

    def wake(self) -> None:
        """End `serve` now: the program is over."""
        self._requests.wake()

    def sweep(self) -> None:
        """Remove what dead runs have left."""
        self._folder.sweep(self._root)

    def hand_over(self) -> None:
        """A forked child leads from now on."""
        self._requests.hand_over()

    def abandon(self) -> None:
        """Who led is gone: remove the folder if nobody uses it; else a later run does."""
        if not self._folder.close(check=True):
            self._folder.leave()

    def close(self) -> str:
        """Remove the run's folder; if processes still use it, which is said, a later run does."""
        answered = self._requests.close(_AT_THE_END)
        if self.run is not None and answered:  # else it is still being used
            self.run.close()
        used = self.run is not None and bool(self.run.folders)
        until = time.monotonic() + _GRACE
        while not self._folder.close(check=used):
            if time.monotonic() > until:
                self._folder.leave()
                return (
                    "what still runs in the background keeps its folder, but nothing is kept of it"
                )
            time.sleep(0.02)
        return "" if answered else "a request was not answered"

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        run = self.begin()
        return {} if run is None else run.answer(request)
