"""Running a program as if nobody stood before it: signals, job control and exit status pass."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from trivet.plans.lifeline import die_with

_SENT_BY_KERNEL = 0x80  # si_code of a signal that a terminal sends to its whole foreground group
_TICK = 0.2  # seconds between looks at the program, in case a signal was merged with another
_ENDING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
# Stopping, faults of this process, and what can't be caught are not passed on.
_OWN = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE,
    signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGPROF, signal.SIGVTALRM,
}  # fmt: skip


class Program:
    """A program that was started in the place of this process.

    It is in this process's group, so a terminal's signals reach it by themselves; those that were
    sent to this process alone are passed on. It dies with this process.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it. Raises `OSError` when it can't be started; one that names no file when this
        process may have no other beside it."""
        self._all = signal.valid_signals() - _OWN
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._all | {signal.SIGCHLD})
        # Where whoever started this ignores it, the kernel would keep no program's end for us.
        self._chld = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.status: int | None = None
        try:
            self.pid = self._start(command, environment)
        except OSError:
            signal.signal(signal.SIGCHLD, self._chld)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
            raise
        self._not_left = _children() if os.getpid() == 1 else set()

    def wait(self, on_signal: Callable[[int], bool] = lambda _: False) -> int:
        """Until the program ends; its status as `os.waitpid` gives it.

        ``on_signal`` is asked first for every signal that came for this process alone; where it
        answers True the signal is not passed on.
        """
        while self.status is None:
            info = signal.sigtimedwait(self._all | {signal.SIGCHLD}, _TICK)
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._pass_on(info, on_signal)
            self._look()
            if os.getpid() == 1:
                self._reap()
        return self.status

    def somebody_wants_an_end(self) -> bool:
        """Whether a signal to end came since this was asked before."""
        wanted = False
        while signal.sigtimedwait(_ENDING, 0) is not None:
            wanted = True
        return wanted

    def end_like_it(self) -> NoReturn:
        """Exit as the program did: with its code, or by the signal that killed it."""
        assert self.status is not None
        while signal.sigtimedwait(self._all, 0) is not None:
            pass  # came for a program that had ended
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file is enough
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            os.kill(os.getpid(), number)
            os._exit(128 + number)  # the first process of a container survives its own signals
        os._exit(os.waitstatus_to_exitcode(self.status))

    # -- inside --------------------------------------------------------------------------------

    def _start(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        parent = os.getpid()
        reading, writing = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            try:
                die_with(parent)
                signal.signal(signal.SIGCHLD, self._chld)
                signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
                become(command, environment)
            except OSError as error:
                os.write(writing, str(error.errno).encode())
            finally:
                os._exit(127)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            failed = pipe.read()
        if failed:
            os.waitpid(pid, 0)
            raise OSError(int(failed), os.strerror(int(failed)), command[0])
        return pid

    def _pass_on(self, info: signal.struct_siginfo, on_signal: Callable[[int], bool]) -> None:
        number = info.si_signo
        # A timer of who ran this in its own place, such as a time limit, was meant for the program.
        of_terminal = info.si_code == _SENT_BY_KERNEL and number != signal.SIGALRM
        if of_terminal or on_signal(number):
            return
        os.kill(self.pid, number)

    def _look(self) -> None:
        """Note the program's end; stop with it when it stops, and make it go on with this one."""
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            # Without a terminal nobody waits for a stopped job, and who stopped the program alone
            # makes only the program go on.
            if _has_terminal():
                os.kill(os.getpid(), signal.SIGSTOP)
                os.kill(self.pid, signal.SIGCONT)
        else:
            self.status = status

    def _reap(self) -> None:
        """In the first process of a container: end what has lost its parents, as init does."""
        for pid in _children() - self._not_left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _children() -> set[int]:
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children") as file:
            return {*map(int, file.read().split())}
    except OSError:
        return set()  # a kernel that does not tell


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run the command in the place of this process. Raises `OSError` when it can't be started."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python, not by others
        signal.signal(number, signal.SIG_DFL)
    if not command[0]:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        # A script that names no interpreter is the shell's: see execvp(3).
        shell = ["/bin/sh", error.filename, *command[1:]]
        os.execve(shell[0], shell, dict(environment))


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
