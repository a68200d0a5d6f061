"""What guards a program, in a process of its own.

The cache is mapped into memory, so that damage to it may kill who reads it. The program, and who
waits for it, go on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trivet.plans.lifeline import die_with

if TYPE_CHECKING:
    from trivet.cli.ready import Readiness
    from trivet.plans.folders.lead import Lead

_LOOK = 0.25  # seconds between looks whether the program is ready
_TICK = 0.05  # seconds between looks whether somebody wants this to end
_ITS_OWN = 0.1  # seconds in which signals may have been meant for the program, which has ended
_LAST = 0.5  # seconds for what is being kept, when somebody wants this to end
_PACKET = 1 << 17  # bytes of an answer
# What was compiled may be what killed it; asked to end, a program did nothing wrong.
_FAULTS = {signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT}
_ASKED_TO_END = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL}


class Keeper:
    """A handle on the process in which ``guard`` works, for the process that runs the program."""

    def __init__(self, guard: Guard) -> None:
        """Fork; from now on the guard is that process's alone. Raises `OSError`."""
        self._lead = guard.lead
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        self._why = ""
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                die_with(parent)
                self._control.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
                guard.serve(theirs)
                status = 0
            except Exception as error:  # noqa: BLE001  told, and the program goes on without
                theirs.send(b"!" + (str(error) or type(error).__name__).encode()[:_PACKET])
            finally:
                os._exit(status)
        theirs.close()
        guard.lead.hand_over()

    def begin(self) -> dict[str, str]:
        """Variables for the program; waits for folders that are filled before it starts."""
        pairs = self._ask(b"begin").split(b"\0")[1:]
        split = (os.fsdecode(each).partition("=") for each in pairs)
        return {name: value for name, _, value in split}

    def keep(self) -> None:
        """Have kept what was compiled so far, in its own time."""
        self._send(b"keep", socket.MSG_DONTWAIT)

    def end(self, status: int | None, is_wanted: Callable[[], bool]) -> tuple[str, str]:
        """The program ended with ``status``, None if it could not be started. Waits until all is
        kept.

        Returns what there is to say, and else why nothing was guarded. It ends early where
        ``is_wanted`` tells, by which it is asked often, that somebody wants this process to end.
        """
        self._send(b"end" if status is None else b"end %d" % status)
        began = time.monotonic()
        until: float | None = None
        while not select.select([self._control], [], [], _TICK)[0]:
            now = time.monotonic()
            if is_wanted() and now - began > _ITS_OWN and until is None:
                until = now + _LAST
            if until is not None and now > until:
                self._kill()
                return "", "it was to end before all was kept"
        told = self._receive()
        if told.startswith(b"="):
            return told[1:].decode(errors="replace"), ""
        return "", self._kill()

    # -- inside --------------------------------------------------------------------------------

    def _ask(self, question: bytes) -> bytes:
        self._send(question)
        return self._receive()

    def _send(self, text: bytes, flags: int = 0) -> None:
        with contextlib.suppress(OSError):  # it is gone, which is said in the end
            self._control.send(text, flags)

    def _receive(self) -> bytes:
        try:
            told = self._control.recv(_PACKET + 1)
        except OSError:
            return b""
        if told.startswith(b"!"):
            self._why = told[1:].decode(errors="replace")
        return told

    def _kill(self) -> str:
        """End it, if it has not ended; returns why it did."""
        status = 0
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # where nobody is told
            os.kill(self._pid, signal.SIGKILL)
            status = os.waitpid(self._pid, 0)[1]
        self._lead.abandon()
        code = os.waitstatus_to_exitcode(status)
        died = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return self._why or f"the process that keeps the cache ended {died}"


class Guard:
    """Answers the program's processes, and does what a `Keeper` asks.

    Args:
        lead: of the run.
        ready: tells when to keep for the first time.
        prepare: does in advance what the first request would wait for.
        declare: begins the run; gives variables for the program.
        tell: what there is to say at the end.
    """

    def __init__(
        self,
        lead: Lead,
        ready: Readiness | None,
        prepare: Callable[[], None],
        declare: Callable[[], Mapping[str, str]],
        tell: Callable[[], str],
    ) -> None:
        self.lead, self._ready, self._prepare = lead, ready, prepare
        self._declare, self._tell = declare, tell
        self._over = threading.Event()

    def serve(self, control: socket.socket) -> None:
        """Until the end is asked for."""
        watcher = threading.Thread(target=self._watch_or_end, daemon=True)
        watcher.start()
        while asked := control.recv(_PACKET):
            what, _, status = asked.partition(b" ")
            if what == b"begin":
                variables = self._declare()
                pairs = [os.fsencode(f"{name}={value}") for name, value in variables.items()]
                control.send(b"\0".join([b"=", *pairs]))
            elif what == b"keep" and self.lead.run is not None:
                self.lead.run.capture()
            elif what == b"end":
                self._over.set()
                self.lead.wake()
                watcher.join()
                self._end(int(status) if status else None)
                control.send(b"=" + self._tell().encode("utf-8", "replace")[:_PACKET])
                return

    def _end(self, status: int | None) -> None:
        run = self.lead.run
        if run is None or status is None:
            return
        code = os.waitstatus_to_exitcode(status)
        if -code not in _FAULTS:
            run.capture()
        run.ended(well=code == 0 or -code in _ASKED_TO_END)

    def _watch_or_end(self) -> None:
        try:
            self._watch()
        except BaseException as error:  # noqa: BLE001
            # Whoever asks would wait for an answer; without this process nobody does.
            if sys.stderr is not None:
                sys.stderr.write(f"trivet: the guard failed: {error!r}\n")
            os._exit(1)

    def _watch(self) -> None:
        """Answer the program's processes, and capture once when it is ready."""
        lead, ready = self.lead, self._ready
        if ready is not None:
            # Apart, since whoever is asked may take any time, also after the program's end.
            threading.Thread(target=ready.look, args=(self._over,), daemon=True).start()
        self._prepare()
        threading.Thread(target=lead.sweep, daemon=True).start()
        while not self._over.is_set():
            lead.serve(_LOOK)
            if ready is not None and ready.seen.is_set():
                if lead.run is not None:
                    lead.run.capture()
                    lead.run.is_ready()
                ready = None
