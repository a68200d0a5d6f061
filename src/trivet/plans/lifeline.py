"""A child process that ends when its parent does, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: what is between a fork and an exec may take no lock of the loader.
_libc = ctypes.CDLL(None)


def die_with(parent: int) -> None:
    """In the child of the process ``parent``: be killed when it ends; at once if it has."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
