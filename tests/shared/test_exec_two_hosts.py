"""``trivet exec`` on two hosts with one object store: what one compiled, the other does not."""

from __future__ import annotations

import json
import os
import shutil
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import eventually
from tests.support.guarded import Guarded, start_command
from tests.support.toys import COMPILE, GUARD, MEETS, python, run, start

SERVER = """
import http.server, json, sys
from pathlib import Path
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Softmax(-1), torch.nn.Linear(32, 4))
compiled = torch.compile(model)

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        x = torch.linspace(-1, 1, 64).reshape(4, 16)
        with torch.no_grad():
            found, right = compiled(x), model(x)
        body = json.dumps(float((found - right).abs().max())).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
    Path(sys.argv[1]).write_text(str(server.server_port))
    server.serve_forever()
"""

JAX_PROGRAM = """
import jax, jax.numpy as jnp
print(float(jax.jit(lambda x: jnp.tanh(x @ x.T).sum())(jnp.ones((8, 4)))))
"""


@pytest.fixture(params=["s3", "folder"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        url: str = request.getfixturevalue("s3")
        return url
    (tmp_path / "bucket").mkdir()
    return f"file://{tmp_path / 'bucket'}"


def test_what_grows_is_shared_as_it_grows(bucket: str, tmp_path: Path) -> None:
    shared = (*GUARD, "--shared", bucket)
    said = []
    for host, names in (("a", "x"), ("a", "xy"), ("b", "xy"), ("b", "xyz"), ("c", "xyz")):
        done = run(tmp_path / host, [*python(COMPILE), *names], *shared)
        said.append("".join(line[0] for line in done.stdout.splitlines()))
    assert said == ["m", "hm", "hh", "hhm", "hhh"]


@pytest.mark.timeout(120)
def test_hosts_of_one_job_do_not_wait_for_one_another(valkey: str, tmp_path: Path) -> None:
    """The lease is the same on both: one would wait for the other, and be waited for."""
    os.mkfifo(tmp_path / "meet")
    (tmp_path / "bucket").mkdir()
    shared = (*GUARD, "--shared", f"file://{tmp_path / 'bucket'}", "--shared", valkey)
    processes = [
        start(
            tmp_path / f"host {part}",
            python(MEETS),
            *shared,
            more={"PART": part, "MEET": str(tmp_path / "meet"), "RANK": part, "WORLD_SIZE": "2"},
        )
        for part in "01"
    ]
    ended = [each.communicate(timeout=100) for each in processes]
    assert [each.returncode for each in processes] == [0, 0], ended
    done = run(tmp_path / "host 2", [*python(COMPILE), "part0", "part1"], *shared)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["hit", "hit"]


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """A compiler that writes down what it is asked to compile, in the file ``compiled``."""
    real = shutil.which("g++")
    assert real is not None
    path = tmp_path / "g++"
    path.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\nexec {real} "$@"\n')
    path.chmod(0o755)
    return path


def compiled(tmp_path: Path) -> list[str]:
    asked = (tmp_path / "asked").read_text().splitlines()
    (tmp_path / "asked").unlink()
    return [each for each in asked if ".cpp" in each or ".hpp" in each]


@pytest.mark.timeout(900)
def test_the_second_host_compiles_nothing_for_a_torch_server(
    s3: str, compiler: Path, tmp_path: Path
) -> None:
    """Not even the probes by which Inductor finds out what the processor can do."""
    program = tmp_path / "serve.py"
    program.write_text(SERVER)
    counted = []
    for host in ("a", "b"):
        effect = serve(tmp_path, host, program, s3, compiler)
        counted.append((effect["counters"]["hits"], effect["counters"]["misses"]))
        counted.append((effect["restored"], bool(compiled(tmp_path))))
    assert counted == [(0, 1), ("empty", True), (1, 0), ("hit", False)]


def serve(tmp_path: Path, host: str, program: Path, bucket: str, compiler: Path) -> Any:
    """One life of the server: started, ready, asked once, told to end."""
    port = tmp_path / f"port of {host}"
    process = start_command(
        tmp_path / host,
        [sys.executable, program, port],
        CXX=str(compiler),
        TRIVET_SHARED=bucket,
    )
    try:
        eventually(port.exists, "the server is up", 300.0)
        eventually(lambda: bool(port.read_text()), "it said where")
        with urllib.request.urlopen(f"http://127.0.0.1:{port.read_text()}/", timeout=300) as said:
            assert json.loads(said.read()) < 1e-5
    finally:
        process.terminate()
        _, told = process.communicate(timeout=120)
    effects = {each["framework"]: each for each in json.loads(told.splitlines()[-1])["effects"]}
    return effects["torch"]


@pytest.mark.timeout(600)
def test_the_second_host_compiles_nothing_for_a_jax_program(s3: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(JAX_PROGRAM)
    counted = []
    for host in ("a", "b", "b"):
        process = start_command(tmp_path / host, [sys.executable, program], "--shared", s3)
        counters = Guarded(process, 280).effects["jax"]["counters"]
        counted.append((counters["hits"], counters["misses"]))
    compiles = counted[0][1]
    assert compiles > 0
    assert counted == [(0, compiles), (compiles, 0), (compiles, 0)]
