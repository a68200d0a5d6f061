"""Readiness, asked over HTTP by another process than the one that gets ready."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import onnx_models
from tests.support.cli import COMMAND, environment
from tests.support.engine import eventually
from tests.support.installed import that_does

WAITS = """
import os
if os.path.exists({fifo!r}):
    open({fifo!r}).read()
    os.unlink({fifo!r})
raise ImportError("this build is broken")
"""
SERVER = """
import sys
import numpy as np
from trivet import Cache
from trivet.warm import ReadinessServer, Warmup

with Cache.open(sys.argv[1]) as cache:
    warmup = Warmup(cache, sys.argv[2])
    with ReadinessServer(warmup, "127.0.0.1", 0) as server:
        warmup.start()
        print(server.address, flush=True)
        for line in sys.stdin:
            rows = int(line)
            try:
                y = warmup.plan("net").run({"x": np.ones((rows, 16), np.float32)})["y"]
                print(len(y), flush=True)
            except Exception as error:
                print(type(error).__name__, flush=True)
"""


BUSY = """
import os
while not os.path.exists({go!r}):
    for _ in range(1000):
        pass
raise ImportError("this build is broken")
"""
STARTS = """
import sys
from trivet import Cache
from trivet.warm import ReadinessServer, Warmup

with Cache.open(sys.argv[1]) as cache:
    warmup = Warmup(cache, sys.argv[2])
    with ReadinessServer(warmup, "127.0.0.1", 0) as server:
        print(server.address, flush=True)
        sys.stdin.readline()
        warmup.start()
        sys.stdin.readline()
"""


def ask(address: str, what: str = "ready") -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{address}/{what}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def plan_file(folder: Path, *, second_required: bool) -> Path:
    """A model that gets ready, and one that waits for the test and then fails."""
    onnx_models.save(onnx_models.dynamic_batch(), folder / "net.onnx")
    required = str(second_required).lower()
    file = folder / "plan.toml"
    file.write_text(
        "[[model]]\nname = 'net'\npath = 'net.onnx'\nshapes = 'x=N{2,4}x16'\n"
        "[[model]]\nname = 'slow'\npath = 'net.onnx'\nbackend = 'openvino'\n"
        f"required = {required}\n"
    )
    return file


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "go"
    os.mkfifo(path)
    that_does(tmp_path / "lib", "openvino", WAITS.format(fifo=str(path)))
    return path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    running = []

    def run(*command: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            list(map(str, command)),
            env=environment(tmp_path / "cache", PYTHONPATH=str(tmp_path / "lib")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield run
    for each in running:
        each.kill()
        each.communicate()


def done_with_first(address: str) -> bool:
    return bool(ask(address)[1]["done"] == 2)


@pytest.mark.parametrize(("required", "code"), [(False, 200), (True, 500)])
def test_a_host_is_warmed_by_a_command_that_answers_when_it_is_ready(
    required: bool, code: int, tmp_path: Path, fifo: Path, start: Any
) -> None:
    file = plan_file(tmp_path, second_required=required)
    process = start(COMMAND, "warm", file, "--serve-ready", "127.0.0.1:0")
    address = re.match(r"(http://\S+)/ready", process.stderr.readline())[1]
    eventually(lambda: done_with_first(address), "the first model is warm")
    status, told = ask(address)
    assert (status, told["state"]) == (503, "warming")
    assert told["now"].startswith("slow")
    assert told["total"] == 3
    first = told["models"][0]
    assert [each["result"] for each in first["variants"]] == ["compiled", "compiled"]
    assert first["variants"][0]["phases"]["compile"] > 0
    fifo.write_text("")
    eventually(lambda: ask(address)[0] == code, "it is over")
    _, told = ask(address)
    assert told["state"] == ("failed" if required else "ready")
    where = "failures" if required else "alarms"
    assert any("this build is broken" in each for each in told[where])
    eventually(lambda: process.stdout.readline().startswith("3 variants"), "the table is written")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == int(required)


def test_a_server_is_ready_with_the_plans_that_it_serves_from(
    tmp_path: Path, fifo: Path, start: Any
) -> None:
    file = plan_file(tmp_path, second_required=False)
    process = start(sys.executable, "-c", SERVER, tmp_path / "cache", file)
    address = process.stdout.readline().strip()

    def request(rows: int) -> str:
        process.stdin.write(f"{rows}\n")
        process.stdin.flush()
        return str(process.stdout.readline().strip())

    assert request(3) == "3", "a request is served before all is warm"
    eventually(lambda: done_with_first(address), "the first model is warm")
    assert ask(address)[0] == 503
    fifo.write_text("")
    eventually(lambda: ask(address)[0] == 200, "it is ready")
    net = ask(address)[1]["models"][0]
    assert {"first run", "compile"} <= net["variants"][0]["phases"].keys()
    assert net["coverage"]["warmed"] == ["x=2x16", "x=4x16"]
    assert net["coverage"]["missing"] == []
    assert request(5) == "ShapeOutside"
    told = ask(address)[1]
    assert list(told["models"][0]["coverage"]["outside"]) == ["x=5x16"]
    assert "net: requests of x=5x16 lie outside the shape rules" in told["alarms"]
    stats = subprocess.run(
        [COMMAND, "stats"], env=environment(tmp_path / "cache"), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert "net.onnx: 1 shape of requests lay outside the shape rules" in stats.stdout


def states(address: str) -> tuple[tuple[int, str], tuple[int, str]]:
    """What is ready and what lives, as codes and states."""
    answers = [ask(address), ask(address, "live")]
    ready, live = ((code, told["state"]) for code, told in answers)
    return ready, live


def test_a_server_lives_from_its_start_and_turns_ready_in_the_end(
    tmp_path: Path, fifo: Path, start: Any
) -> None:
    file = plan_file(tmp_path, second_required=False)
    process = start(sys.executable, "-c", STARTS, tmp_path / "cache", file)
    address = process.stdout.readline().strip()
    assert states(address) == ((503, "waiting"), (200, "waiting"))
    process.stdin.write("go\n")
    process.stdin.flush()
    seen = []

    def done() -> int:
        told = ask(address)[1]
        seen.append((told["state"], told["done"]))
        return int(told["done"])

    eventually(lambda: done() == 2, "the first model is warm")
    assert states(address) == ((503, "warming"), (200, "warming"))
    fifo.write_text("")
    eventually(lambda: done() == 3, "all is done")
    eventually(lambda: ask(address)[0] == 200, "it is ready")
    assert states(address) == ((200, "ready"), (200, "ready"))
    order = {"waiting": 0, "warming": 1, "ready": 2}
    steps = [(order[state], number) for state, number in seen]
    assert steps == sorted(steps), "it never goes back"


def test_a_server_that_failed_lives_and_never_turns_ready(
    tmp_path: Path, fifo: Path, start: Any
) -> None:
    file = plan_file(tmp_path, second_required=True)
    process = start(sys.executable, "-c", SERVER, tmp_path / "cache", file)
    address = process.stdout.readline().strip()
    fifo.write_text("")
    eventually(lambda: ask(address)[0] == 500, "it failed")
    process.stdin.write("3\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == "3", "what is there is served"
    assert states(address) == ((500, "failed"), (200, "failed"))
    _, told = ask(address)
    (why,) = told["failures"]
    assert why.startswith("slow ")
    assert "this build is broken" in why
    slow = told["models"][1]
    assert (slow["state"], slow["required"]) == ("failed", True)


def test_it_answers_while_a_compiler_takes_all_of_the_interpreter(
    tmp_path: Path, start: Any
) -> None:
    """As tracing in Python does, for minutes."""
    file = plan_file(tmp_path, second_required=True)
    go = tmp_path / "go"
    that_does(tmp_path / "lib", "openvino", BUSY.format(go=str(go)))
    process = start(sys.executable, "-c", SERVER, tmp_path / "cache", file)
    address = process.stdout.readline().strip()
    eventually(lambda: done_with_first(address), "the first model is warm")
    before = _processor_seconds(process.pid)
    for _ in range(3):
        assert states(address) == ((503, "warming"), (200, "warming"))
    assert _processor_seconds(process.pid) > before, "it was busy meanwhile"
    go.touch()
    eventually(lambda: ask(address)[0] == 500, "it failed")


def _processor_seconds(pid: int) -> float:
    """Used so far by a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
