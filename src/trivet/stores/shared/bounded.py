"""Connections to a Valkey whose answers are there in time as a whole.

A socket's time-out counts from one piece to the next: who sends a byte now and then keeps a reader
for ever.
"""

from __future__ import annotations

import functools
import socket
import time
from typing import Any


class BoundedSocket:
    """A socket that stops to receive ``seconds`` after it sent last; with `TimeoutError`."""

    def __init__(self, inner: socket.socket, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._timeout: float | None = seconds

    def sendall(self, data: bytes) -> None:
        """Ask."""
        self._inner.settimeout(self._seconds)
        self._inner.sendall(data)
        self._end = time.monotonic() + self._seconds

    def recv(self, size: int) -> bytes:
        """As of every socket."""
        self._limit()
        return self._inner.recv(size)

    def recv_into(self, buffer: bytearray, size: int = 0) -> int:
        """As of every socket."""
        self._limit()
        return self._inner.recv_into(buffer, size)

    def settimeout(self, seconds: float | None) -> None:
        """As of every socket; the end stays."""
        self._timeout = seconds

    def _limit(self) -> None:
        if self._timeout == 0:  # a look whether something is there
            self._inner.settimeout(0)
            return
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the whole answer was not there in time")
        self._inner.settimeout(left if self._timeout is None else min(left, self._timeout))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def bounded_pool() -> type[Any]:
    """A class of the client's pools whose connections have such sockets."""
    from valkey.connection import Connection, ConnectionPool

    class BoundedPool(ConnectionPool):
        def __init__(self, connection_class: Any = Connection, **options: Any) -> None:
            super().__init__(_bounded(connection_class), **options)

    return BoundedPool


@functools.cache
def _bounded(base: Any) -> type[Any]:
    class Bounded(base):  # type: ignore[misc]
        def _connect(self) -> BoundedSocket:
            return BoundedSocket(super()._connect(), self.socket_timeout)

    return Bounded
