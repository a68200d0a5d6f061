"""Who asks whether a server may get traffic: an ASGI application, and a small server of its own."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import msgspec

from trivet.warm.plain import plain
from trivet.warm.status import State

if TYPE_CHECKING:
    from trivet.warm.warmup import Warmup

_Message: TypeAlias = MutableMapping[str, Any]
AsgiApp: TypeAlias = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]],
    Awaitable[None],
]
_CODES = {
    State.WAITING: HTTPStatus.SERVICE_UNAVAILABLE,
    State.WARMING: HTTPStatus.SERVICE_UNAVAILABLE,
    State.READY: HTTPStatus.OK,
    State.FAILED: HTTPStatus.INTERNAL_SERVER_ERROR,
}
_PATIENCE = 10.0  # seconds for a request to be read; whoever asks is near


def answer(warmup: Warmup, method: str, path: str) -> tuple[int, bytes]:
    """Status code and JSON body for a request.

    ``path`` is what is left below the place where this is mounted: ``/ready``, or nothing.
    200 when all that is required is ready, 503 until then, 500 when something required failed,
    404 and 405 for what is no such question. ``/live`` is 200 whatever the state, which it names:
    a process that warms for an hour is not to be killed for it.
    """
    asked = path.rstrip("/").rpartition("/")[2]
    if asked not in ("", "ready", "live"):
        return _error(HTTPStatus.NOT_FOUND, "ask for /ready or /live")
    if method not in ("GET", "HEAD"):
        return _error(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD")
    if asked == "live":
        return HTTPStatus.OK, msgspec.json.encode({"state": warmup.state}) + b"\n"
    status = warmup.status()
    body = msgspec.json.format(msgspec.json.encode(plain(status)), indent=1) + b"\n"
    return _CODES[status.state], body


def readiness_app(warmup: Warmup) -> AsgiApp:
    """An ASGI application that answers ``/ready`` and ``/live``; see `answer`.

    To be mounted in a server's own application, or served alone. It reads the host's activity log,
    a few megabytes at most.
    """

    async def app(
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"readiness is asked by http, not by {scope['type']}")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        code, body = answer(warmup, scope["method"], path)
        headers = [(name.encode(), value.encode()) for name, value in _headers(body).items()]
        await send({"type": "http.response.start", "status": int(code), "headers": headers})
        content = b"" if scope["method"] == "HEAD" else body
        await send({"type": "http.response.body", "body": content})

    return app


async def _lifespan(
    receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
) -> None:
    """Nothing is to be done at the start and the end of a server."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class ReadinessServer:
    """Answers ``/ready`` and ``/live`` over HTTP, for programs that have no server.

    It does so in threads of its own, also while a model compiles: compilers run in processes of
    their own or release the interpreter, as ONNX Runtime 1.32 and OpenVINO 2026.4 do.

    Args:
        warmup: whose readiness.
        host, port: where to listen; port 0 for any that is free.

    Attributes:
        address: ``http://host:port``.

    Raises OSError when the address can't be had.
    """

    def __init__(self, warmup: Warmup, host: str, port: int) -> None:
        class Handler(_Handler):
            asked = warmup

        kind = _Server6 if ":" in host else _Server
        self._server = kind((host, port), Handler)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="trivet-readiness", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone away; nobody is to be told."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(http.server.BaseHTTPRequestHandler):
    asked: Warmup
    timeout = _PATIENCE
    server_version = "trivet"
    sys_version = ""

    def _answer(self) -> None:
        code, body = answer(self.asked, self.command, self.path.partition("?")[0])
        with contextlib.suppress(ConnectionError):
            self.send_response(code)
            for name, value in _headers(body).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002
        """A probe every second is not worth a line."""


def _headers(body: bytes) -> dict[str, str]:
    return {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "cache-control": "no-store",
    }


def _error(code: HTTPStatus, text: str) -> tuple[int, bytes]:
    return code, msgspec.json.encode({"error": text}) + b"\n"
