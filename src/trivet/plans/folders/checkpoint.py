"""Asking, from inside a guarded program, that what it compiled is kept now."""

from __future__ import annotations

import os
import selectors
import socket
import sys
from collections.abc import Callable
from pathlib import Path

VARIABLE = "TRIVET_CHECKPOINT"
_KEPT = b"kept"
_PATIENCE = 300.0  # seconds; gigabytes are copied and written through


def checkpoint() -> bool:
    """Keep what this program's frameworks have compiled so far, where ``trivet exec`` runs it.

    Blocks until it is kept. True when it was; False when it was not, and where nothing guards
    this program, so that a call may stay in a program that is run both ways. Never raises.
    """
    address = os.environ.get(VARIABLE)
    if not address:
        return False
    report_here()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(address)
            return connection.recv(16) == _KEPT
    except OSError:
        return False


def report_here() -> None:
    """Have what this process compiled so far reported, if anybody listens."""
    hook = sys.modules.get("trivet_exec_hook")
    if hook is not None:
        hook.report()


class Checkpoints:
    """The other end of `checkpoint`."""

    def __init__(self, folder: Path) -> None:
        self._address = folder / "checkpoint"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._address))
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def variables(self) -> dict[str, str]:
        """What tells the program where to ask."""
        return {VARIABLE: str(self._address)}

    def serve(self, capture: Callable[[], bool], patience: float) -> None:
        """Answer one request, if one comes within ``patience`` seconds."""
        if not self._selector.select(patience):
            return
        try:
            connection, _ = self._listener.accept()
            with connection:
                connection.sendall(_KEPT if capture() else b"not kept")
        except OSError:
            return  # who asked is gone

    def close(self) -> None:
        """Let nobody ask any more."""
        self._selector.close()
        self._listener.close()
