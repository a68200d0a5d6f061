"""Crash points: end the process, as `kill -9` would, between two steps of a write.

Run the code under test in a forked child; go over every step until it completes::

    for n in itertools.count(1):

        def work():
            store = open_store()
            kill_at_step(n)
            store.write(digest, sealed)

        if not run_killed(work):
            break            # the write took fewer than n steps
        check(open_store())

A step is a call of one of `STEPS`: what changes files. The process dies *before* the call (or, for
a write of many bytes, in the middle: half of them are written first).
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

STEPS = (
    "fsync",
    "link",
    "mkdir",
    "open",
    "posix_fallocate",
    "rename",
    "replace",
    "rmdir",
    "unlink",
    "write",
)
"""Functions of `os`; `os.open` counts only when it may create a file."""


class Steps:
    """Counts steps from now on.

    Attributes:
        taken: steps so far.
    """

    def __init__(self, kill_at: int = 0) -> None:
        """Kill this process at step ``kill_at``; 0: only count. There is no way back."""
        self.taken = 0
        self._kill_at = kill_at
        for name in STEPS:
            setattr(os, name, self._wrapped(name, getattr(os, name)))

    def step(self) -> None:
        """One more step: for code under test that can't be wrapped, such as a commit."""
        self.taken += 1
        if self.taken == self._kill_at:
            die()

    def wrap(self, owner: Any, name: str) -> None:
        """Make each call of ``owner.name`` a step before it and a step after it."""
        real = getattr(owner, name)

        def stepping(*args: Any, **options: Any) -> Any:
            self.step()
            result = real(*args, **options)
            self.step()
            return result

        setattr(owner, name, stepping)

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **options: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **options)
            if name == "write" and self.taken + 1 == self._kill_at and len(args[1]) > 1:
                real(args[0], memoryview(args[1])[: len(args[1]) // 2])
            self.step()
            return real(*args, **options)

        return stepping


def kill_at_step(count: int) -> Steps:
    """From now on, kill this process at its ``count``-th step. Meant for a forked child."""
    return Steps(count)


def die() -> NoReturn:
    """End this process at once, without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def run_forked(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child; 0 if it returned, 1 if it raised, -signal if it was killed.

    The child leaves by `os._exit`: no clean-up of the parent's objects runs in it.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_killed(work: Callable[[], object]) -> bool:
    """Run ``work`` in a forked child; True if it was killed, False if it returned.

    Raises `AssertionError` when it ended in another way.
    """
    code = run_forked(work)
    if code not in (0, -signal.SIGKILL):
        raise AssertionError(f"the child ended with {code}, not by the planned kill")
    return code != 0
