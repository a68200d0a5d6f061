"""`ValkeyStore`: sealed entries, and epochs, in Valkey or Redis, one server or a Cluster.

Of an entry, the first 16 bytes are the decimal number of the lease it was made under, then comes
the sealed entry. All epochs are fields of one hash, so that a server which evicts or loses them
loses them together; ``base`` is set anew then.

Who changes something also sets, and deletes, a name that says what and who did it. Its value is
nothing, and it is gone at once: it is for those who are told of changed names (`Push`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from trivet.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from trivet.stores.shared.client import SCHEMES, Cluster, Single, open_client
from trivet.stores.shared.faces import number
from trivet.stores.shared.names import (
    ENTRY,
    EPOCHS,
    digest_of,
    entry_name,
    lease_name,
    news_name,
)
from trivet.stores.store import StoredHead

__all__ = ["SCHEMES", "ValkeyStore"]
_FRONT = 16
_SCAN_HEAD = 4096
_SCAN_BATCH = 500
KEEP_SECONDS = 30 * 86400  # so that nothing is there for ever

# A later holder of the lease has written, or holds it now: what this one made comes too late.
_OFFER = """
local found = redis.call('GETRANGE', KEYS[1], 0, 15)
if found > ARGV[1] then return 0 end
local holder = redis.call('GET', KEYS[2])
if holder and holder > ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'PX', ARGV[3])
redis.call('SET', KEYS[3], '')
redis.call('DEL', KEYS[3])
return 1
"""
_ANNOUNCE = """
redis.call('SET', KEYS[1], '')
redis.call('DEL', KEYS[1])
"""
_BASE = """
if redis.call('HEXISTS', KEYS[1], 'base') == 0 then
  redis.call('HSET', KEYS[1], 'base', ARGV[1])
end
"""
_STATE = (
    _BASE
    + """
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')
local found = {run .. history, redis.call('HGET', KEYS[1], 'base')}
for i = 2, #ARGV do found[i + 1] = redis.call('HGET', KEYS[1], ARGV[i]) or '' end
return found
"""
)
_RAISE = (
    _BASE
    + """
for i = 2, #ARGV do redis.call('HINCRBY', KEYS[1], ARGV[i], 1) end
redis.call('SET', KEYS[2], '')
redis.call('DEL', KEYS[2])
"""
)


class ValkeyStore:
    """A `Store` with epochs.

    Args:
        url: ``valkey://host:port/0``, ``valkeys://`` for TLS, ``unix:///path?db=0``; of a Cluster
            ``valkey-cluster://host:port,host:port``, ``valkeys-cluster://``, some of its servers.
            ``redis`` instead of ``valkey`` is the same.
        timeout: seconds until an answer has to be there as a whole.

    Attributes:
        writer: who is said to have changed what this store changes, ``host.cache``.

    Raises:
        MissingExtra: the client is not installed.
        StoreUnavailable: the url can't be used.
    """

    def __init__(self, url: str, *, timeout: float = 2.0) -> None:
        self.url = url
        self.timeout = timeout
        self.writer = b"%s.%s" % (secrets.token_hex(8).encode(), secrets.token_hex(8).encode())
        self._server = open_client(url, timeout)
        from valkey import exceptions

        self._errors: Any = exceptions
        self._closed = False

    @property
    def client(self) -> Any:
        """The client, for leases. Raises `StoreUnavailable` after `close`, and its own errors."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return self._server.get()

    @property
    def server(self) -> Single | Cluster:
        """What is there."""
        return self._server

    # Entries.

    def read(self, digest: bytes) -> bytes | None:
        """See `Store.read`."""
        with self.asking("read"):
            found: bytes | None = self.client.get(entry_name(digest))
        return None if found is None else found[_FRONT:]

    def write(self, digest: bytes, sealed: bytes) -> None:
        """See `Store.write`."""
        with self.asking("write"):
            content = b"%016d" % 0 + bytes(sealed)
            self.client.set(entry_name(digest), content, ex=KEEP_SECONDS)
        self.announce(digest)

    def offer(self, digest: bytes, sealed: bytes, token: int, seconds: float | None) -> bool:
        """`write` under the lease ``token``, for ``seconds``; False when a later one came first."""
        keep = KEEP_SECONDS if seconds is None else min(seconds, KEEP_SECONDS)
        with self.asking("write"):
            return bool(
                self.client.eval(
                    _OFFER,
                    3,
                    entry_name(digest),
                    lease_name(digest),
                    news_name(digest, self.writer),
                    b"%016d" % token,
                    bytes(sealed),
                    max(1, int(keep * 1000)),
                )
            )

    def delete(self, digest: bytes) -> bool:
        """See `Store.delete`. Nobody is told: copies elsewhere may be good."""
        with self.asking("delete"):
            return bool(self.client.execute_command("UNLINK", entry_name(digest)))

    def announce(self, digest: bytes | None) -> None:
        """Tell all who listen that the entry, or epochs, are others now, wherever they are."""
        with self.asking("announce"):
            self.client.eval(_ANNOUNCE, 1, news_name(digest, self.writer))

    def scan(self) -> Iterator[StoredHead]:
        """See `Store.scan`. The head is the first 4 KiB; of an entry with a longer one, all."""
        seen = set[bytes]()
        with self.asking("scan"):
            every = self.client.scan_iter(match=ENTRY + b"*", count=_SCAN_BATCH)
        while True:
            with self.asking("scan"):
                batch = list(islice(every, _SCAN_BATCH))
                names = list(dict.fromkeys(name for name in batch if name not in seen))
                seen.update(names)
                heads = self._heads(names)
            for name, head in zip(names, heads, strict=True):
                digest = digest_of(name)
                if head and digest is not None:
                    yield StoredHead(digest, head)
            if not batch:
                return

    def _heads(self, names: list[bytes]) -> list[bytes]:
        from trivet.entries import head_length
        from trivet.errors import CorruptEntry

        pipe = self.client.pipeline(transaction=False)
        for name in names:
            pipe.getrange(name, _FRONT, _FRONT + _SCAN_HEAD - 1)
        heads: list[bytes] = pipe.execute() if names else []
        for i, head in enumerate(heads):
            try:
                if head and head_length(head) > len(head):
                    heads[i] = self.client.getrange(names[i], _FRONT, -1)
            except CorruptEntry:
                continue
        return heads

    def close(self) -> None:
        """See `Store.close`."""
        if not self._closed:
            self._closed = True
            self._server.close()

    # Epochs.

    def mark(self) -> str:
        """See `EpochSource.mark`."""
        run, base, count = self._state(["now"])
        return f"{run} {base} {count[0]}"

    def epochs(self, tags: Iterable[str]) -> dict[str, int]:
        """See `EpochSource.epochs`.

        The server's run is part of an epoch, since one that was started again may have gone back to
        an older state; and so is the history of changes that it leads, since a replica that took
        over may have missed the last ones, and the master may take over again from there.
        """
        names = list(tags)
        run, base, counts = self._state([f"tag:{tag}" for tag in names])
        return {tag: number(run, base, count) for tag, count in zip(names, counts, strict=True)}

    def raise_epochs(self, tags: Iterable[str]) -> None:
        """See `EpochSource.raise_epochs`."""
        with self.asking("raise the epochs"):
            self.client.eval(
                _RAISE,
                2,
                EPOCHS,
                news_name(None, self.writer),
                secrets.token_hex(16),
                *(f"tag:{tag}" for tag in tags),
                "now",
            )

    def _state(self, fields: list[str]) -> tuple[str, str, list[str]]:
        with self.asking("read the epochs"):
            found = self.client.eval(_STATE, 1, EPOCHS, secrets.token_hex(16), *fields)
        run, base, *counts = (each.decode("ascii", "replace") for each in found)
        return run, base, counts

    @contextmanager
    def asking(self, doing: str) -> Iterator[None]:
        """The client's errors become `StoreError`."""
        try:
            yield
        except StoreError:
            raise
        except (
            OSError,
            ValueError,
            self._errors.ValkeyError,
            self._errors.ValkeyClusterException,
        ) as error:
            self._server.failed(error)
            message = f"Valkey could not {doing}: {error}"
            text = str(error)
            if text.startswith("MOVED"):
                hint = "it is part of a Cluster: name it with valkey-cluster://"
                raise StoreUnavailable(message, hint=hint) from error
            if isinstance(error, self._errors.OutOfMemoryError) or text.startswith("OOM"):
                raise StoreFull(message) from error
            denied = (self._errors.ReadOnlyError, self._errors.NoPermissionError)
            if isinstance(error, denied):
                raise StoreReadOnly(message) from error
            raise StoreUnavailable(message) from error
