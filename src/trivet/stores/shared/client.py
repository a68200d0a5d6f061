"""The client of one Valkey or of a Cluster, as `ValkeyStore` uses it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from trivet.errors import MissingExtra, StoreUnavailable
from trivet.stores.shared.bounded import bounded_pool

_SINGLE = ("valkey", "valkeys", "redis", "rediss", "unix")
_CLUSTER = ("valkey-cluster", "valkeys-cluster", "redis-cluster", "rediss-cluster")
SCHEMES = (*_SINGLE, *_CLUSTER)
Address = tuple[str, int]
ALONE: frozenset[Address] = frozenset({("", 0)})  # the masters, where there is only one server


class Single:
    """One server.

    Args:
        url: see `ValkeyStore`.
        timeout: seconds for an answer.
    """

    def __init__(self, url: str, timeout: float) -> None:
        import valkey
        from valkey.backoff import NoBackoff
        from valkey.retry import Retry

        self._client: Any = valkey.Valkey.from_pool(
            bounded_pool().from_url(
                _known_to_client(url),
                socket_timeout=timeout,
                socket_connect_timeout=timeout,
                # Once more where an idle connection was closed by the server.
                retry=Retry(NoBackoff(), 1),
                retry_on_error=[valkey.exceptions.ConnectionError],
            )
        )

    def get(self) -> Any:
        """The client."""
        return self._client

    def failed(self, error: Exception) -> None:
        """The client raised ``error``."""

    def masters(self) -> dict[Address, Callable[[], Any]]:
        """Makes a connection for pushes, of every server that is written to."""
        pool = self._client.connection_pool
        return {("", 0): lambda: pool.connection_class(**{**pool.connection_kwargs, "protocol": 3})}

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


class Cluster:
    """The servers of a Cluster, found through any of them.

    The client asks for the slots when it is made, so that is done at the first use. After a fork,
    and where it has lost sight of all servers, it is made anew.
    """

    def __init__(self, url: str, timeout: float) -> None:
        scheme, _, rest = url.partition("://")
        nodes, slash, path = rest.partition("/")
        login, at, hosts = nodes.rpartition("@")
        first, *others = hosts.split(",")
        scheme = scheme.removesuffix("-cluster")
        self._url = _known_to_client(f"{scheme}://{login}{at}{first}{slash}{path}")
        self._others = [_address(each) for each in others]
        self._seen: list[Address] = []
        self._timeout = timeout
        self._lost: list[Any] = []
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._client: Any = None

    def get(self) -> Any:
        """The client."""
        if self._process != os.getpid():
            # Kept, since to let go of it takes its locks, which a thread of the parent may hold.
            self._lost.append(self._client)
            self._reset()
        client = self._client
        if client is None:
            with self._lock:
                client = self._client = self._client or self._connect()
        return client

    def _connect(self) -> Any:
        from valkey import cluster

        parts: Any = cluster  # without types
        client = parts.ValkeyCluster(
            url=self._url,
            startup_nodes=[parts.ClusterNode(*each) for each in {*self._others, *self._seen}],
            connection_pool_class=bounded_pool(),
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
            cluster_error_retry_attempts=1,
            reinitialize_steps=1,
        )
        self._seen = [(node.host, node.port) for node in client.get_nodes()]
        return client

    def failed(self, error: Exception) -> None:
        """See `Single.failed`. One that reaches no server it knows of would never again."""
        from valkey.exceptions import ValkeyClusterException

        if isinstance(error, ValkeyClusterException):
            self._client = None

    def masters(self) -> dict[Address, Callable[[], Any]]:
        """See `Single.masters`."""
        client = self.get()
        slots = client.execute_command("CLUSTER SLOTS")
        alone = client.get_default_node().host  # a server that doesn't know how it is reached
        found = {(each["primary"][0] or alone, each["primary"][1]) for each in slots.values()}
        manager = client.nodes_manager
        options = {**manager.connection_kwargs, "protocol": 3}

        def make(host: str, port: int) -> Callable[[], Any]:
            pool = manager.connection_pool_class(**{**options, "host": host, "port": port})
            return pool.make_connection  # type: ignore[no-any-return]

        return {address: make(*address) for address in found}

    def close(self) -> None:
        """Close its connections."""
        client, self._client = self._client, None
        if client is not None and self._process == os.getpid():
            client.disconnect_connection_pools()  # `close` would break what is under way


def open_client(url: str, timeout: float) -> Single | Cluster:
    """What is at ``url``. Nothing is asked yet.

    Raises `MissingExtra`, `StoreUnavailable`.
    """
    try:
        import valkey  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "Valkey and Redis need the package valkey", hint="pip install 'trivet[shared]'"
        ) from error
    try:
        return (Cluster if url.partition("://")[0] in _CLUSTER else Single)(url, timeout)
    except ValueError as error:
        raise StoreUnavailable(f"{url!r} can't be used: {error}") from error


def _known_to_client(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme.replace('redis', 'valkey')}://{rest}"


def _address(text: str) -> Address:
    parts = urlsplit(f"//{text}")
    if parts.hostname is None:
        raise ValueError(f"{text!r} is not host:port")
    return parts.hostname, parts.port or 6379
