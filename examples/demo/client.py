"""Starts server processes and asks them: the stop-watch of the demo."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from examples.demo.jobs import Job, request

PATIENCE = 120.0  # seconds until a server that does not answer is ended


class Outcome(NamedTuple):
    """What one server process did. ``answer`` is None when it died, and ``died`` says how."""

    seconds: float
    compiled: bool
    answer: dict[str, Any] | None
    died: str = ""


class Started(NamedTuple):
    """A server process that may still be loading, and when it was started."""

    process: subprocess.Popen[bytes]
    since: float


def start(way: str, job: Job, model: Path, cache: Path) -> Started:
    """Start a server process and return at once."""
    since = time.perf_counter()
    command = [sys.executable, "-m", "examples.demo.server", way, job.name]
    command += [str(model), str(cache)]
    pipe = subprocess.PIPE
    return Started(subprocess.Popen(command, stdout=pipe, stderr=pipe), since)


def finish(job: Job, started: Started) -> Outcome:
    """Send the request as soon as the server listens, and wait until the process has ended."""
    process, since = started
    assert process.stdout is not None
    answer = None
    try:
        if port := process.stdout.readline().strip():
            answer = _post(int(port), request(job))
        seconds = time.perf_counter() - since
        _, errors = process.communicate(timeout=PATIENCE)
    except (subprocess.TimeoutExpired, OSError, http.client.HTTPException):
        seconds = time.perf_counter() - since
        process.kill()
        _, errors = process.communicate()
    if answer is None:
        return Outcome(seconds, False, None, _how_it_died(process.returncode, errors))
    return Outcome(seconds, answer.pop("compiled"), answer)


def ask(way: str, job: Job, model: Path, cache: Path) -> Outcome:
    """One process, one request; the time from before the process existed to the last byte."""
    return finish(job, start(way, job, model, cache))


def storm(way: str, job: Job, model: Path, cache: Path, count: int) -> tuple[float, list[Outcome]]:
    """``count`` processes at once; seconds until the last one answered, and what each did."""
    since = time.perf_counter()
    started = [start(way, job, model, cache) for _ in range(count)]
    outcomes = [finish(job, each) for each in started]
    return time.perf_counter() - since, outcomes


def _post(port: int, body: bytes) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", "/", body)
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def _how_it_died(code: int, errors: bytes) -> str:
    if code < 0:
        return signal.Signals(-code).name
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {code}"
