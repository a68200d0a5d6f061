"""A process that asks, in one or many threads or tasks, for what `tests.support.flights` plays."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.flights import PAUSE, lines


class Member:
    """What a member's program knows of its cell; its arguments are those that `play` gives."""

    def __init__(self, arguments: Sequence[str]) -> None:
        folder, self.scope, self.fate, name, callers = arguments
        self.folder, self.callers = Path(folder), int(callers)
        self.name = name

    @property
    def host(self) -> Path:
        """The folder of this member's host: one for all, unless they are on hosts of their own."""
        number = int(self.name) % 2 if self.scope == "hosts" else 0
        return self.folder / f"host-{number}"

    def note_wait(self) -> None:
        """A caller is known to wait now."""
        _append(self.folder / "waits")

    def compute(self, x: int) -> int:
        """The function that all want to have called."""
        first = self._is_first()
        while not (self.folder / "go-on").exists():
            time.sleep(PAUSE)
        return self._done(x, first)

    async def compute_async(self, x: int) -> int:
        """The same for tasks."""
        first = self._is_first()
        while not (self.folder / "go-on").exists():
            await asyncio.sleep(PAUSE)
        return self._done(x, first)

    def ask(self, function: Callable[[int], Any]) -> None:
        """Call ``function``, which is `compute` with something around, as the cell says."""
        _say("ready")
        sys.stdin.readline()
        if self.fate == "forks":
            threading.Thread(target=self._fork, args=(function,), daemon=True).start()
        if self.scope == "tasks":
            asyncio.run(self._ask_in_tasks(function))
        elif self.scope == "threads":
            threads = [threading.Thread(target=_ask, args=(function,)) for _ in range(self.callers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            _ask(function)

    def _is_first(self) -> bool:
        _append(self.folder / "calls", str(os.getpid()))
        with suppress(FileExistsError):
            os.close(os.open(self.folder / "first", os.O_CREAT | os.O_EXCL))
            return True
        return False

    def _done(self, x: int, first: bool) -> int:
        if first and self.fate == "raises":
            raise LookupError("the leader's")
        if first and self.fate == "cancelled" and self.scope == "threads":
            raise KeyboardInterrupt
        return 2 * x

    def _fork(self, function: Callable[[int], Any]) -> None:
        while not (self.folder / "gate").exists():
            time.sleep(PAUSE)
        if lines(self.folder / "calls")[0] == str(os.getpid()) and os.fork() == 0:
            with suppress(BaseException):
                if self.scope == "tasks":
                    asyncio.run(_ask_async(function))
                else:
                    _ask(function)
            os._exit(0)

    async def _ask_in_tasks(self, function: Callable[[int], Coroutine[Any, Any, int]]) -> None:
        tasks = [asyncio.create_task(_ask_async(function)) for _ in range(self.callers)]
        if self.fate == "cancelled":
            while not (self.folder / "gate").exists():
                await asyncio.sleep(PAUSE)
            tasks[0].cancel()
            await asyncio.sleep(0)
            (self.folder / "go-on").touch()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ask(function: Callable[[int], int]) -> None:
    try:
        _say("value" if function(21) == 42 else "wrong")
    except BaseException as error:  # noqa: BLE001  told to the one who plays
        _say(type(error).__name__)


async def _ask_async(function: Callable[[int], Coroutine[Any, Any, int]]) -> None:
    try:
        _say("value" if await function(21) == 42 else "wrong")
    except BaseException as error:
        _say(type(error).__name__)
        raise


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def _append(path: Path, line: str = "x") -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")
