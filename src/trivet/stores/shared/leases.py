"""Leases of a whole fleet, in Valkey: with a time-out, a heartbeat and a number that only grows.

The server's clock alone decides when a lease is over, so the hosts' clocks don't matter. A lease
keeps double work away and nothing more: two holders at once are possible (a holder that was stopped
for longer than the time-out goes on), so what they write is safe without it.
"""

from __future__ import annotations

import os
import threading
import weakref

from trivet.errors import StoreError
from trivet.forks import in_children
from trivet.stores.shared.names import last_lease_name, lease_name
from trivet.stores.shared.valkey import ValkeyStore

SECONDS = 30.0

# The number is the server's time in microseconds, or one more than the last where that is larger:
# it grows although the server forgets, and although its clock is set back.
_TAKE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return false end
local now = redis.call('TIME')
local token = tonumber(now[1]) * 1000000 + tonumber(now[2])
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if token <= last then token = last + 1 end
local text = string.format('%016.0f', token)
redis.call('SET', KEYS[2], text)
redis.call('SET', KEYS[1], text, 'PX', ARGV[1])
return text
"""
_EXTEND = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
"""
_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class HostLease:
    """A lease that this process took.

    Attributes:
        token: its number; larger than that of every lease on the digest before it.
        lost: whether the heartbeat found that somebody else may hold it now.
    """

    def __init__(self, leases: Leases, digest: bytes, token: int) -> None:
        self._leases = leases
        self._process = os.getpid()
        self._released = False
        self.digest = digest
        self.token = token
        self.lost = False

    def still_held(self) -> bool:
        """Ask the server. Raises `StoreError`."""
        return not self.lost and self._leases.extend(self)

    def release(self) -> None:
        """Let others have it now. Never fails: it ends by itself. A second call does nothing."""
        # A forked child has a copy of the object, not of the right.
        if self._released or self._process != os.getpid():
            return
        self._released = True
        self._leases.give_back(self)


class Leases:
    """Takes leases on digests and keeps them alive.

    Args:
        store: where they are kept.
        seconds: for how long a lease outlives its holder; the heartbeat comes three times as often.
    """

    def __init__(self, store: ValkeyStore, *, seconds: float = SECONDS) -> None:
        self._store = store
        self._milliseconds = max(1, int(seconds * 1000))
        self._reset()
        _every.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._held: weakref.WeakSet[HostLease] = weakref.WeakSet()
        self._beating = False
        self._ended = threading.Event()

    def try_take(self, digest: bytes) -> HostLease | None:
        """The lease if it is free, None if somebody holds it. Raises `StoreError`."""
        with self._store.asking("take a lease"):
            names = (lease_name(digest), last_lease_name(digest))
            text = self._store.client.eval(_TAKE, 2, *names, self._milliseconds)
        if text is None:
            return None
        lease = HostLease(self, digest, int(text))
        with self._lock:
            self._held.add(lease)
            if not self._beating:
                self._beating = True
                threading.Thread(
                    target=_beat,
                    args=(weakref.ref(self), self._ended, self._milliseconds / 3000),
                    name="trivet-leases",
                    daemon=True,
                ).start()
        return lease

    def extend(self, lease: HostLease) -> bool:
        """Whether the lease is still held; if so, from now on for its full time."""
        with self._store.asking("extend a lease"):
            return bool(
                self._store.client.eval(
                    _EXTEND,
                    1,
                    lease_name(lease.digest),
                    b"%016d" % lease.token,
                    self._milliseconds,
                )
            )

    def give_back(self, lease: HostLease) -> None:
        """End the lease if it is still held; a server that can't be reached ends it later."""
        self._held.discard(lease)
        try:
            with self._store.asking("release a lease"):
                self._store.client.eval(
                    _RELEASE, 1, lease_name(lease.digest), b"%016d" % lease.token
                )
        except StoreError:
            pass

    def beat(self) -> None:
        """Extend what is held."""
        for lease in list(self._held):
            try:
                lease.lost = lease.lost or not self.extend(lease)
            except StoreError:
                continue  # nobody can take it there either, until it is over

    def close(self) -> None:
        """End the heartbeat."""
        self._ended.set()


def _beat(leases: weakref.ref[Leases], ended: threading.Event, seconds: float) -> None:
    while not ended.wait(seconds):
        held = leases()
        if held is None:
            return
        held.beat()
        del held


_every = in_children(Leases._reset)
