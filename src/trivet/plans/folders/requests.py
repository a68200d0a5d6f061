"""Where the processes of a run ask the command that leads it.

A request is one line of JSON, and so is the answer. Each is answered in a thread of its own, since
one may wait for what another run compiles.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SOCKET = "socket"
_LIMIT = 64 << 20  # bytes of a request; most of one is the environment and the search path
Answer = Callable[[dict[str, Any]], dict[str, Any]]


def ask(folder: str | os.PathLike[str], request: dict[str, Any], patience: float) -> dict[str, Any]:
    """What the command that leads the run in ``folder`` answers.

    Raises `OSError` when nobody answers, and `ValueError` for what is no answer.
    """
    import json  # most runs need none

    with _in_folder(folder) as address, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(patience)
        connection.connect(address)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as told:
            answer: dict[str, Any] = json.loads(told.readline() or b"{}")
            return answer


@contextlib.contextmanager
def _in_folder(folder: str | os.PathLike[str]) -> Any:
    """The socket's address by way of a descriptor: a socket's path may have 107 bytes only."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)


class Requests:
    """The other end of `ask`. Whoever asks before it is served waits."""

    def __init__(self, folder: Path) -> None:
        """Raises `OSError`."""
        self._listener = socket.socket(socket.AF_UNIX)
        with _in_folder(folder) as address:
            self._listener.bind(address)
        self._listener.listen(128)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._answering: list[threading.Thread] = []

    def serve(self, answer: Answer, patience: float) -> None:
        """Take one request, if one comes within ``patience`` seconds, and see to its answer."""
        if self._listener not in [key.fileobj for key, _ in self._selector.select(patience)]:
            return
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # who asked is gone
        thread = threading.Thread(target=_answer, args=(connection, answer), daemon=True)
        self._answering = [each for each in self._answering if each.is_alive()]
        self._answering.append(thread)
        thread.start()

    def wake(self) -> None:
        """End `serve` now, and whenever it is called again."""
        os.write(self._wake, b"!")

    def hand_over(self) -> None:
        """A forked child serves: who asks it after its death must not wait here."""
        self._selector.close()
        self._listener.close()

    def close(self, patience: float) -> bool:
        """Let nobody ask any more; False if an answer is still being made."""
        self._selector.close()
        self._listener.close()
        os.close(self._woken)
        os.close(self._wake)
        until = time.monotonic() + patience
        for each in self._answering:
            each.join(max(0.0, until - time.monotonic()))
        return not any(each.is_alive() for each in self._answering)


def _answer(connection: socket.socket, answer: Answer) -> None:
    import json

    # Who asks may go at any time, and may be any program.
    with contextlib.suppress(OSError, ValueError, RecursionError), connection:
        with connection.makefile("rb") as told:
            request = json.loads(told.readline(_LIMIT))
        if isinstance(request, dict):
            connection.sendall(json.dumps(answer(request)).encode() + b"\n")
