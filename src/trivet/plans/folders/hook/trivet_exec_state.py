"""What is known in this process; a part of `trivet_exec_hook`."""

from __future__ import annotations

import contextlib
import os
import threading

from trivet_exec_counters import Counters
from trivet_exec_loaded import RUN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trivet_exec_loaded import Loads

FOLDERS = os.path.join(RUN, "folders", "")


def fresh_name() -> str:
    """Of this process and no other; numbers come again, and are others in a container."""
    return f"{os.getpid()}-{os.urandom(6).hex()}"


class _Thread(threading.local):
    is_ours = False  # what it does is the guard's own work
    has_loaded = False  # a library of the program's, since what is in use was compared


class _State:
    """There is one, and a lock for it."""

    def __init__(self) -> None:
        self.arguments: list[str] = []
        self.modules: set[str] = set()  # for which folders were asked
        self.given: dict[str, dict[str, Any]] = {}  # framework to the folder it has now
        self.left: dict[str, list[str]] = {}  # folder to what was loaded while it was in use
        self.used: dict[str, set[str]] = {}  # folder to what was own when something got into it
        self.is_blind = False  # something that tells what is loaded could not be watched
        self.doubt = ""
        self.loads: Loads | None = None
        self.is_broken = False  # what is known can't be written down
        self.holds: int | None = None  # a descriptor; the folder of the run stays while it is open
        self.undo = contextlib.ExitStack()  # closed when the guard is over
        self.begin()

    def begin(self) -> None:
        """A process begins, also as a child that was forked."""
        self.name = fresh_name()
        self.lock = threading.RLock()
        self.thread = _Thread()
        self.counters = Counters()
        self.written = ""
        self.written_at: tuple[int, int, float] | None = None  # see `trivet_exec_report`

    def in_use(self) -> list[str]:
        """The names of the folders that frameworks have now."""
        return [each["name"] for each in self.given.values()]


state = _State()
