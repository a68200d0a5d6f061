"""Servers for the tests of the shared tier: started once, with a new bucket or database a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.support.servers import S3, Valkey, ValkeyCluster, Wire

_numbers = count()


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    server = Valkey(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def valkey(valkey_server: Valkey) -> str:
    """The url of an empty Valkey."""
    import valkey as client

    with client.Valkey(port=valkey_server.port) as connection:
        connection.flushall()
    return valkey_server.url


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[Valkey]:
    """A Valkey that the test may kill."""
    folder = tmp_path / "own-valkey"
    folder.mkdir()
    server = Valkey(folder)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def cluster_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    cluster = ValkeyCluster(tmp_path_factory.mktemp("cluster"))
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture
def cluster(cluster_servers: ValkeyCluster) -> ValkeyCluster:
    """An empty Cluster."""
    for node in cluster_servers.nodes[:3]:
        cluster_servers.ask(node, "FLUSHALL")
    return cluster_servers


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[ValkeyCluster]:
    """A Cluster whose servers the test may kill."""
    folder = tmp_path / "own-cluster"
    folder.mkdir()
    cluster = ValkeyCluster(folder)
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    server = S3(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """The url of an empty bucket."""
    for name, value in s3_server.environment(s3_server.port).items():
        monkeypatch.setenv(name, value)
    return s3_server.make_bucket(f"bucket-{next(_numbers)}")


@pytest.fixture
def wire_to() -> Iterator[Callable[[int], Wire]]:
    """Makes wires to ports."""
    wires: list[Wire] = []

    def make(port: int) -> Wire:
        wires.append(Wire(port))
        return wires[-1]

    yield make
    for wire in wires:
        wire.close()


@pytest.fixture
def socket_url(tmp_path: Path) -> Iterator[str]:
    """The url of a Valkey that listens on a Unix socket, whose path must be short."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="vk") as folder:
        path = Path(folder) / "s"
        server = Valkey(tmp_path, "--unixsocket", str(path))
        server.start()
        yield f"unix://{path}?db=0"
        server.kill()
