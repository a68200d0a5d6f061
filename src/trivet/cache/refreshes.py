"""What is being made anew in the background: one turn for each entry, and threads to compute in."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable

from trivet import log
from trivet.cache.tiers import Tiers
from trivet.events import EventKind, Tier
from trivet.forks import in_children
from trivet.keys import Key

_THREADS = 4
_MOST_TURNS = 256
_MOST_RESTS = 1024
_BUSY_SECONDS = 0.1
_FIRST_REST, _LAST_REST = 1.0, 60.0
_CLOSE_SECONDS = 5.0


class Turn:
    """The turn of this process to make one entry anew. Over at `end`, or when it is collected, as
    with a task that is cancelled before it begins."""

    __slots__ = ("__weakref__", "_refreshes", "key")

    def __init__(self, refreshes: Refreshes, key: Key) -> None:
        self._refreshes = refreshes
        self.key = key

    def done(self) -> None:
        """The entry is new; also where somebody else made it so."""
        self._refreshes.rest(self, 0.0)

    def busy(self) -> None:
        """Somebody else is making it anew: look again in a moment."""
        self._refreshes.rest(self, _BUSY_SECONDS)

    def failed(self, why: str) -> None:
        """It could not be made, and is not tried again for a while; ``why`` is for people."""
        self._refreshes.failed(self, why)

    def end(self) -> None:
        """Another turn may begin. A second call does nothing."""
        self._refreshes.end(self)


class Refreshes:
    """The turns of one process, and up to four threads that exist while there is work for them.

    At the end of a process, as of any that has threads, Python waits for computations that run;
    those that have not begun are dropped.
    """

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._monotonic = tiers.clock.monotonic
        self._rests: dict[bytes, tuple[float, float]] = {}  # until when, and for how long
        self._closed = False
        self._forget()
        _every.add(self)

    def _forget(self) -> None:
        # In a forked child the threads, and the leases that they hold, are the parent's.
        self._changed = threading.Condition()
        self._turns: weakref.WeakValueDictionary[bytes, Turn] = weakref.WeakValueDictionary()
        self._waiting: deque[Callable[[], object]] = deque()
        self._threads: set[threading.Thread] = set()

    def begin(self, key: Key) -> Turn | None:
        """The turn to make ``key`` anew; None if somebody has it, it rests, or too many are on."""
        digest = key.digest
        with self._changed:
            if self._closed or digest in self._turns or len(self._turns) >= _MOST_TURNS:
                return None
            if digest in self._rests and self._monotonic() < self._rests[digest][0]:
                return None
            turn = self._turns[digest] = Turn(self, key)
            return turn

    def is_on(self, key: Key) -> bool:
        """Whether somebody in this process has the turn."""
        return key.digest in self._turns

    def start(self, work: Callable[[], object]) -> None:
        """Call ``work`` in a thread of this object. It holds a turn, and raises no `Exception`."""
        with self._changed:
            if self._closed:
                return
            self._waiting.append(work)
            if len(self._threads) >= _THREADS:
                return
            thread = threading.Thread(target=self._work, name="trivet-refresh", daemon=False)
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as error:  # out of threads, or the interpreter is about to end
            log.warning("nothing can be made anew in the background: %s", error)
            self._leave(thread)

    def rest(self, turn: Turn, seconds: float) -> None:
        """Begin no turn for the same key for ``seconds``."""
        digest, now = turn.key.digest, self._monotonic()
        with self._changed:
            if not seconds:
                self._rests.pop(digest, None)
                return
            if len(self._rests) >= _MOST_RESTS:
                self._rests = {each: rest for each, rest in self._rests.items() if now < rest[0]}
            if len(self._rests) < _MOST_RESTS:
                self._rests[digest] = (now + seconds, seconds)

    def failed(self, turn: Turn, why: str) -> None:
        """See `Turn.failed`."""
        _, before = self._rests.get(turn.key.digest, (0.0, 0.0))
        self.rest(turn, min(max(_FIRST_REST, 2 * before), _LAST_REST))
        self._tiers.emit(EventKind.REFRESH_FAILED, Tier.ENGINE, key=turn.key, detail=why)
        log.warning("a value could not be made anew and goes on answering for a while: %s", why)

    def end(self, turn: Turn) -> None:
        """See `Turn.end`."""
        with self._changed:
            if self._turns.get(turn.key.digest) is turn:
                del self._turns[turn.key.digest]

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Begin nothing any more, and wait up to ``seconds`` for what runs in threads."""
        here = {threading.current_thread()}
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.wait_for(lambda: self._threads <= here, seconds)

    def _work(self) -> None:
        thread = threading.current_thread()
        try:
            while (work := self._next(thread)) is not None:
                work()
                del work  # and with it the turn, while this thread waits for the lock
        finally:
            self._leave(thread)

    def _next(self, thread: threading.Thread) -> Callable[[], object] | None:
        with self._changed:
            if not threading.main_thread().is_alive():
                self._waiting.clear()  # the process ends
            if self._waiting:
                return self._waiting.popleft()
            self._gone(thread)  # with the lock still held, so that the next work gets a thread
            return None

    def _leave(self, thread: threading.Thread) -> None:
        with self._changed:
            self._gone(thread)

    def _gone(self, thread: threading.Thread) -> None:
        self._threads.discard(thread)
        if not self._threads:
            self._waiting.clear()  # only where a thread could not be started, or was ended
        self._changed.notify_all()


_every = in_children(Refreshes._forget)
