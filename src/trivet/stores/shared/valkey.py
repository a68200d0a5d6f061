"""`ValkeyStore`: small sealed entries, and epochs, in Valkey or Redis.

Names begin with ``trivet:``. Of an entry, the first 16 bytes are the decimal number of the lease it
was made under, then comes the sealed entry. All epochs are fields of one hash, so that a server
which evicts or loses them loses them together; ``base`` is set anew then.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from trivet.errors import (
    MissingExtra,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from trivet.stores.shared.bounded import bounded_connection
from trivet.stores.shared.faces import number
from trivet.stores.store import StoredHead

SCHEMES = ("valkey", "valkeys", "redis", "rediss")
_ENTRY = b"trivet:entry:"
_EPOCHS = "trivet:epochs"
_FRONT = 16
_SCAN_HEAD = 4096
KEEP_SECONDS = 30 * 86400  # so that nothing is there for ever

# A later holder of the lease has written, or holds it now: what this one made comes too late.
_OFFER = """
local found = redis.call('GETRANGE', KEYS[1], 0, 15)
if found > ARGV[1] then return 0 end
local holder = redis.call('GET', KEYS[2])
if holder and holder > ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1] .. ARGV[2], 'PX', ARGV[3])
return 1
"""


class ValkeyStore:
    """A `Store` with epochs.

    Args:
        url: ``valkey://host:port/0``; ``valkeys://`` for TLS; ``redis://`` and ``rediss://`` too.
        timeout: seconds until an answer has to be there as a whole.

    Raises:
        MissingExtra: the client is not installed.
        StoreUnavailable: the url can't be used.
    """

    def __init__(self, url: str, *, timeout: float = 2.0) -> None:
        try:
            import valkey
            from valkey.backoff import NoBackoff
            from valkey.retry import Retry
        except ImportError as error:
            raise MissingExtra(
                "Valkey and Redis need the package valkey", hint="pip install 'trivet[shared]'"
            ) from error
        self.url = url
        self._errors: Any = valkey.exceptions
        self._closed = False
        with self.asking("open"):
            scheme, _, rest = url.partition("://")
            self._client: Any = valkey.Valkey.from_url(
                f"{scheme.replace('redis', 'valkey')}://{rest}",
                socket_timeout=timeout,
                socket_connect_timeout=timeout,
                connection_class=bounded_connection(tls=scheme in ("valkeys", "rediss")),
                # Once more where an idle connection was closed by the server.
                retry=Retry(NoBackoff(), 1),
                retry_on_error=[valkey.exceptions.ConnectionError],
            )

    @property
    def client(self) -> Any:
        """The client, for leases. Raises `StoreUnavailable` after `close`."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return self._client

    # Entries.

    def read(self, digest: bytes) -> bytes | None:
        """See `Store.read`."""
        with self.asking("read"):
            found: bytes | None = self.client.get(_ENTRY + digest)
        return None if found is None else found[_FRONT:]

    def write(self, digest: bytes, sealed: bytes) -> None:
        """See `Store.write`."""
        with self.asking("write"):
            content = b"%016d" % 0 + bytes(sealed)
            self.client.set(_ENTRY + digest, content, ex=KEEP_SECONDS)

    def offer(self, digest: bytes, sealed: bytes, token: int, seconds: float | None) -> bool:
        """`write` under the lease ``token``, for ``seconds``; False when a later one came first."""
        keep = KEEP_SECONDS if seconds is None else min(seconds, KEEP_SECONDS)
        with self.asking("write"):
            return bool(
                self.client.eval(
                    _OFFER,
                    2,
                    _ENTRY + digest,
                    lease_name(digest),
                    b"%016d" % token,
                    bytes(sealed),
                    max(1, int(keep * 1000)),
                )
            )

    def delete(self, digest: bytes) -> bool:
        """See `Store.delete`."""
        with self.asking("delete"):
            return bool(self.client.unlink(_ENTRY + digest))

    def scan(self) -> Iterator[StoredHead]:
        """See `Store.scan`. The head is the first 4 KiB; of an entry with a longer one, all."""
        cursor, seen = 0, set[bytes]()
        while True:
            with self.asking("scan"):
                cursor, names = self.client.scan(cursor, match=_ENTRY + b"*", count=500)
                names = [name for name in names if name not in seen]
                seen.update(names)
                heads = self._heads(names)
            for name, head in zip(names, heads, strict=True):
                if head:
                    yield StoredHead(name[len(_ENTRY) :], head)
            if not cursor:
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
            self._client.close()

    # Epochs.

    def mark(self) -> str:
        """See `EpochSource.mark`."""
        run, base, count = self._state(["now"])
        return f"{run} {base} {count[0]}"

    def epochs(self, tags: Iterable[str]) -> dict[str, int]:
        """See `EpochSource.epochs`.

        The server's run is part of an epoch: one that was started again may have gone back to an
        older state, and so may a replica that took over.
        """
        names = list(tags)
        run, base, counts = self._state([f"tag:{tag}" for tag in names])
        return {tag: number(run, base, count) for tag, count in zip(names, counts, strict=True)}

    def raise_epochs(self, tags: Iterable[str]) -> None:
        """See `EpochSource.raise_epochs`."""
        with self.asking("raise the epochs"):
            pipe = self.client.pipeline(transaction=True)
            pipe.hsetnx(_EPOCHS, "base", secrets.token_hex(16))
            for tag in (*(f"tag:{tag}" for tag in tags), "now"):
                pipe.hincrby(_EPOCHS, tag, 1)
            pipe.execute()

    def _state(self, fields: list[str]) -> tuple[str, str, list[str]]:
        with self.asking("read the epochs"):
            pipe = self.client.pipeline(transaction=True)
            pipe.hsetnx(_EPOCHS, "base", secrets.token_hex(16))
            pipe.info("server")
            pipe.hmget(_EPOCHS, ["base", *fields])
            _, facts, (base, *counts) = pipe.execute()
        texts = ["" if count is None else count.decode("ascii", "replace") for count in counts]
        return str(facts["run_id"]), base.decode("ascii", "replace"), texts

    @contextmanager
    def asking(self, doing: str) -> Iterator[None]:
        """The client's errors become `StoreError`."""
        try:
            yield
        except StoreError:
            raise
        except (OSError, ValueError, self._errors.ValkeyError) as error:
            message = f"Valkey could not {doing}: {error}"
            text = str(error)
            if isinstance(error, self._errors.OutOfMemoryError) or text.startswith("OOM"):
                raise StoreFull(message) from error
            denied = (self._errors.ReadOnlyError, self._errors.NoPermissionError)
            if isinstance(error, denied):
                raise StoreReadOnly(message) from error
            raise StoreUnavailable(message) from error


def lease_name(digest: bytes) -> bytes:
    """Under which the lease on ``digest`` is kept."""
    return b"trivet:lease:" + digest
