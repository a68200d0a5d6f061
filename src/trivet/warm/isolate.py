"""A job in a process of its own, which tells what it has done line by line and may die of it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable

import msgspec

from trivet.plans.backends.child import command_of, error_lines

_TICK = 0.1  # seconds between looks whether to stop
_SAID = 64 << 10  # bytes of diagnostics to look at, from the end


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How the process ended.

    ``trouble`` says it in words, empty where it ended as it should; ``timed_out`` that it was
    killed for taking too long.
    """

    trouble: str = ""
    hint: str = ""
    timed_out: bool = False


def run_isolated(
    module: str,
    job: msgspec.Struct,
    told: Callable[[bytes], None],
    *,
    seconds: float,
    stop: threading.Event,
) -> Ended:
    """Have ``module.main()`` do ``job``, which it gets as MessagePack on its standard input.

    ``told`` gets each line that it writes to its standard output, as it comes. What it started is
    killed with it, after ``seconds`` or when ``stop`` is set.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command_of(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            process_group=0,  # so that what it started can be killed with it
        )
        try:
            late = _listen(process, msgspec.msgpack.encode(job), told, seconds, stop)
        finally:
            _kill(process)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _SAID))
        said = error_lines(errors.read().decode(errors="replace"))
    if late:
        return Ended(trouble=f"took longer than {seconds:g} s", timed_out=True)
    return _judge(process.returncode, said)


def _listen(
    process: subprocess.Popen[bytes],
    job: bytes,
    told: Callable[[bytes], None],
    seconds: float,
    stop: threading.Event,
) -> bool:
    """Pass its lines on until it ends; True if it took too long."""
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    rest = b""
    try:
        with process.stdin as pipe:
            pipe.write(job)
    except BrokenPipeError:
        pass  # it died at once; how, is seen below
    with selectors.DefaultSelector() as selector, process.stdout as output:
        selector.register(output, selectors.EVENT_READ)
        while not stop.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            if not selector.select(min(left, _TICK)):
                continue
            piece = os.read(output.fileno(), 1 << 16)
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                told(line)
    # It is not reaped yet, so that its group can be no other one's when that is killed.
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if stop.wait(_TICK / 10) or time.monotonic() > deadline:
            return not stop.is_set()
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It, unless it has ended, and what it left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _judge(code: int, said: str) -> Ended:
    if code == 0:
        return Ended()
    if code > 0:
        last = said.splitlines()[-1] if said else "it said nothing"
        return Ended(trouble=f"its process ended with {code}: {last}")
    name = signal.Signals(-code).name
    about = f": {said.splitlines()[-1]}" if said else ""
    hint = "memory may have run out" if -code == signal.SIGKILL else ""
    return Ended(trouble=f"its process was ended by {name}{about}", hint=hint)
