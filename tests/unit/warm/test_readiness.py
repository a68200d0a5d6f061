"""The ASGI face of readiness, by a server's own protocol."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.support import onnx_models

from trivet.cache import Cache
from trivet.warm import ReadinessServer, Warmup, readiness_app
from trivet.warm.readiness import AsgiApp


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx_models.save(onnx_models.mlp(), tmp_path / "net.onnx")
    path = tmp_path / "plan.toml"
    path.write_text("[[model]]\npath = 'net.onnx'\n")
    return path


def ask(app: AsgiApp, path: str, method: str = "GET", root: str = "") -> tuple[int, bytes]:
    """Status and body, as a server gets them."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "root_path": root}
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    start, body = sent
    headers = dict(start["headers"])
    assert headers[b"content-type"] == b"application/json"
    return start["status"], body["body"]


def test_it_turns_ready_only_when_everything_is(file: Path, tmp_path: Path) -> None:
    with Cache.open(tmp_path / "c", strict=True) as cache:
        warmup = Warmup(cache, file)
        app = readiness_app(warmup)
        status, body = ask(app, "/ready")
        assert (status, json.loads(body)["state"]) == (503, "waiting")
        assert warmup.start().wait(60)
        status, body = ask(app, "/ready")
        assert (status, json.loads(body)["state"]) == (200, "ready")


@pytest.mark.parametrize(
    ("path", "root", "method", "status"),
    [
        ("/ready", "", "GET", 503),
        ("/ready/", "", "HEAD", 503),
        ("/ready", "/ready", "GET", 503),  # mounted there
        ("/health/ready", "/health", "GET", 503),
        ("/live", "", "GET", 200),
        ("/health/live", "/health", "HEAD", 200),
        ("/live", "", "POST", 405),
        ("/other", "", "GET", 404),
        ("/ready", "", "POST", 405),
    ],
)
def test_what_is_asked_and_how(path: str, root: str, method: str, status: int, file: Path) -> None:
    app = readiness_app(Warmup(Cache(None), file))
    found, body = ask(app, path, method, root)
    assert found == status
    assert bool(body) == (method != "HEAD")


def test_a_server_that_runs_it_alone_may_start_and_stop_it(file: Path) -> None:
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    app = readiness_app(Warmup(Cache(None), file))
    asyncio.run(app({"type": "lifespan"}, receive, send))  # type: ignore[arg-type]
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_required_failure_is_told_as_one_and_an_optional_one_is_not(
    file: Path, tmp_path: Path
) -> None:
    for required, status in ((True, 500), (False, 200)):
        more = f"[[model]]\npath = 'none.onnx'\nrequired = {str(required).lower()}\n"
        both = file.with_name("both.toml")
        both.write_text(file.read_text() + more)
        with Cache.open(tmp_path / "c", strict=True) as cache:
            warmup = Warmup(cache, both)
            warmup.run()
            found, body = ask(readiness_app(warmup), "/ready")
            alive = ask(readiness_app(warmup), "/live")
        assert found == status
        assert (alive[0], json.loads(alive[1])) == (200, {"state": warmup.state})
        told = json.loads(body)
        text = told["failures"] if required else told["alarms"]
        assert any("there is no model file" in each for each in text)


def test_the_server_of_its_own_ends_its_threads(file: Path) -> None:
    before = threading.active_count()
    with ReadinessServer(Warmup(Cache(None), file), "::1", 0) as server:
        assert server.address.startswith("http://[::1]:")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with pytest.raises(urllib.request.HTTPError, match="503"):  # type: ignore[attr-defined]
            opener.open(f"{server.address}/ready", timeout=10)
    assert threading.active_count() == before
