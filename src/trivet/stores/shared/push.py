"""`Push`: being told at once of what others change in Valkey.

A thread keeps a connection to every server that is written to, on which the server announces the
names that begin with ``trivet:news:`` (``CLIENT TRACKING`` in broadcasting mode, RESP 3). Every
second it asks each of them something, so that a wire that was cut is noticed, and in a Cluster so
that a slot that moved to another server is. Where one connection fails all are made anew.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any, Protocol

from trivet.errors import StoreError, StoreReadOnly, StoreUnavailable
from trivet.forks import in_children
from trivet.stores.shared.client import ALONE, Address
from trivet.stores.shared.names import NEWS, News, parse_news
from trivet.stores.shared.valkey import ValkeyStore

BEAT_SECONDS = 1.0
_START_SECONDS = 0.1
_FIRST_PAUSE = 0.05
_LAST_PAUSE = 5.0
_REFUSED_PAUSE = 60.0


class Listener(Protocol):
    """Who is told, in the thread of a `Push`."""

    def connected(self) -> None:
        """From now on nothing is missed."""

    def changed(self, news: Sequence[News]) -> None:
        """Others, or this process, changed something."""

    def lost(self, why: str) -> None:
        """After `connected`: from now on, and perhaps for a second or two, something is missed."""

    def beat(self) -> None:
        """Every second while connected."""

    def refused(self, why: str) -> None:
        """The server can't push, or doesn't allow it."""


class Push:
    """Tells a listener, which it doesn't keep alive, until `close`.

    The thread begins with `start`. A forked child has none until it calls `start`, too.
    """

    def __init__(self, store: ValkeyStore, listener: Listener) -> None:
        self._store = store
        self._listener = weakref.ref(listener)
        self._links: list[_Link] = []
        self._closed = False
        self._reset()
        _every.add(self)

    def _reset(self) -> None:
        # The parent goes on with these connections: the child only lets go of its copies, so that
        # they end with the parent.
        for link in self._links:
            link.close()
        self._links = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._tried = threading.Event()
        self._waker: tuple[socket.socket, socket.socket] | None = None

    def start(self) -> None:
        """Begin, unless it has begun or ended; returns soon, and mostly after `connected`."""
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is not None or self._closed:
                return
            waker = socket.socketpair()
            thread = threading.Thread(
                target=self._run, args=(waker,), name="trivet-push", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no more threads, or the interpreter is about to end
                for end in waker:
                    end.close()
                return
            self._thread, self._waker = thread, waker
        self._tried.wait(_START_SECONDS)  # what is read before it is connected has to go then

    def close(self) -> None:
        """End the thread and its connections."""
        with self._lock:
            self._closed = True
            self._ended.set()
            thread, waker = self._thread, self._waker
        if thread is None or waker is None:
            return
        with suppress(OSError):
            waker[0].send(b"x")
        if thread is not threading.current_thread():
            thread.join(self._store.timeout + BEAT_SECONDS)

    def _run(self, waker: tuple[socket.socket, socket.socket]) -> None:
        try:
            pause = _FIRST_PAUSE
            while not self._ended.is_set() and self._listener() is not None:
                pause = self._follow(waker[1], pause)
                self._ended.wait(pause)
        finally:
            for end in waker:
                end.close()

    def _follow(self, wake: socket.socket, pause: float) -> float:
        """Connect and listen as long as that goes; returns the seconds to wait then."""
        connected = False
        why = "closed"
        try:
            self._connect()
            connected = self._tell(lambda listener: listener.connected())
            self._tried.set()
            self._listen(wake)
        except (_Refused, StoreReadOnly) as error:
            refusal = str(error)
            self._tell(lambda listener: listener.refused(refusal))
            pause = _REFUSED_PAUSE
        except StoreError as error:
            why = error.message
            pause = _FIRST_PAUSE if connected else min(pause * 2, _LAST_PAUSE)
        finally:
            self._tried.set()
            for link in self._links:
                link.close()
            self._links = []
            if connected and not self._ended.is_set():
                self._tell(lambda listener: listener.lost(why))
        return pause

    def _connect(self) -> None:
        with self._store.asking("follow changes"):
            masters = self._store.server.masters()
            for make in masters.values():
                # In the list before it is opened: a fork may come at any time.
                self._links.append(_Link(make(), frozenset(masters), self._store.timeout))
                self._links[-1].open()

    def _listen(self, wake: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            for link in self._links:
                selector.register(link, selectors.EVENT_READ, link)
            next_beat = time.monotonic()
            while not self._ended.is_set():
                for ready, _ in selector.select(max(0.0, next_beat - time.monotonic())):
                    if ready.data is not None:
                        self._hear(ready.data)
                if time.monotonic() < next_beat:
                    continue
                if not self._tell(lambda listener: listener.beat()):
                    return
                with self._store.asking("follow changes"):
                    for link in self._links:
                        link.beat()
                next_beat = time.monotonic() + BEAT_SECONDS

    def _hear(self, link: _Link) -> None:
        with self._store.asking("follow changes"):
            names = link.read()
        if b"" in names:
            raise StoreUnavailable("everything in Valkey was removed")
        news = [each for name in names if (each := parse_news(name)) is not None]
        if news:
            self._tell(lambda listener: listener.changed(news))

    def _tell(self, tell: Callable[[Listener], object]) -> bool:
        """False when there is no listener any more."""
        listener = self._listener()
        if listener is not None:
            tell(listener)
        return listener is not None


def check_pushes(store: ValkeyStore) -> None:
    """Connect as a `Push` does, and let go. Raises `StoreError` where nothing would be told."""
    with store.asking("follow changes"):
        masters = store.server.masters()
        for make in masters.values():
            with closing(_Link(make(), frozenset(masters), store.timeout)) as link:
                link.open()


class _Refused(StoreUnavailable):
    """The server answered, and not with what is needed."""


class _Link:
    """The connection to one server."""

    def __init__(self, connection: Any, masters: frozenset[Address], timeout: float) -> None:
        self._connection = connection
        self._masters = masters
        self._timeout = connection.socket_timeout = max(timeout, 2 * BEAT_SECONDS)
        self._asked_at: float | None = None

    def open(self) -> None:
        """Connect and begin to be told."""
        from valkey.exceptions import ResponseError

        connection = self._connection
        try:
            connection.connect()
            parser = connection._parser
            if hasattr(parser, "set_invalidation_push_handler"):  # the parser written in C has none
                parser.set_invalidation_push_handler(lambda pushed: pushed)
            connection.send_command("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", NEWS)
            connection.read_response()
        except ResponseError as error:
            raise _Refused(f"Valkey does not push changes: {error}") from error

    def fileno(self) -> int:
        """For a selector."""
        number: int = self._connection._sock.fileno()
        return number

    def beat(self) -> None:
        """Ask, and fail where the last question has no answer yet."""
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
            question = ("PING",) if self._masters == ALONE else ("CLUSTER", "SLOTS")
            self._connection.send_command(*question, check_health=False)
        elif now - self._asked_at > self._timeout:
            raise StoreUnavailable("Valkey does not answer who follows its changes")

    def read(self) -> list[bytes]:
        """The names that changed; an empty one for all of them."""
        names: list[bytes] = []
        while self._connection.can_read(0):
            answer = self._connection.read_response(push_request=True)
            if isinstance(answer, list) and answer and answer[0] == b"invalidate":
                names += [b""] if answer[1] is None else answer[1]
                continue
            self._asked_at = None
            if isinstance(answer, list) and self._read_masters(answer) != self._masters:
                raise StoreUnavailable("the Cluster has other masters now")
        return names

    def _read_masters(self, slots: list[Any]) -> frozenset[Address]:
        own = self._connection.host
        return frozenset(
            ((host or b"").decode() or own, port) for _, _, (host, port, *_), *_ in slots
        )

    def close(self) -> None:
        """End it; in a forked child only this copy of it."""
        self._connection.disconnect()


_every = in_children(Push._reset)
