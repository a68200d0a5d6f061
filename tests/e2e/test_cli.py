"""The command as a user meets it: its own process, exit codes, streams, a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support import onnx_models
from tests.support.cli import COMMAND, environment, trivet
from tests.support.engine import eventually

import trivet as package

BACKENDS = ("onnxruntime", "openvino")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return onnx_models.save(onnx_models.conv_net(), tmp_path / "net.onnx")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def in_a_terminal(cache: Path, *arguments: object, columns: int = 80) -> tuple[int, str]:
    """Exit code and screen of a command whose streams are all a terminal."""
    size = {"COLUMNS": str(columns), "LINES": "50", "TERM": "xterm-256color"}
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, *map(str, arguments)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment(cache, **size),
    )
    os.close(terminal)
    screen = b""
    while True:
        try:
            piece = os.read(master, 1 << 16)
        except OSError:  # what Linux says when the last process has closed its side
            break
        if not piece:
            break
        screen += piece
    os.close(master)
    return process.wait(), screen.decode()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_process_hits_and_gives_the_result_of_the_first(
    backend: str, model: Path, cache: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(3).random((1, 3, 32, 32), np.float32))
    results = []
    for start in range(2):
        output = tmp_path / f"{start}.npz"
        given = ("--input", f"x={tmp_path / 'x.npy'}", "--output", output, "--json")
        done = trivet(cache, "run", model, "--backend", backend, *given)
        assert (done.code, done.err) == (0, "")
        assert done.json()["source"] == ("compiled", "cache")[start]
        with np.load(output) as arrays:
            results.append(arrays["y"])
    np.testing.assert_array_equal(*results)


def test_swapped_weights_are_a_miss_that_why_explains(model: Path, cache: Path) -> None:
    assert trivet(cache, "run", model).code == 0
    assert trivet(cache, "why", model).code == 0
    times = model.stat()
    onnx_models.save(onnx_models.conv_net(seed=1), model)
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert model.stat().st_size == times.st_size
    done = trivet(cache, "why", model, "--json")
    assert done.code == 3
    differences = done.json()["variants"][0]["nearest"]["differences"]
    assert [each["field"] for each in differences] == ["graph.weights"]


def test_a_plan_file_warms_is_checked_and_dropped_by_its_release(model: Path, cache: Path) -> None:
    file = model.with_name("plan.toml")
    models = "".join(f"[[model]]\npath = 'net.onnx'\nbackend = '{each}'\n" for each in BACKENDS)
    file.write_text(f"release = '7'\n{models}")
    assert trivet(cache, "why", file).code == 1  # there is no cache yet
    assert trivet(cache, "warm", file).code == 0
    assert trivet(cache, "why", file).code == 0
    assert trivet(cache, "drop", "--tag", "release=7", "--yes").code == 0
    done = trivet(cache, "why", file)
    assert done.code == 3
    assert done.out.count("a tag that the stored plan depends on was invalidated") == 2


def test_usage_errors_exit_with_2_and_name_the_choices(model: Path, cache: Path) -> None:
    done = trivet(cache, "run", model, "--backend", "tvm")
    assert done.code == 2
    assert all(each in done.err for each in BACKENDS)
    assert trivet(cache, "polish").code == 2


def test_an_error_is_one_message_without_a_traceback(cache: Path) -> None:
    done = trivet(cache, "run", "missing.onnx", "--json")
    assert done.code == 1
    assert "Traceback" not in done.err
    assert done.json()["error"] == {
        "type": "ModelError",
        "message": "there is no model file missing.onnx",
        "hint": None,
    }
    shown = trivet(cache, "run", "missing.onnx", TRIVET_DEBUG="1")
    assert "Traceback" in shown.err


def test_a_missing_framework_names_the_command_that_installs_it(model: Path, cache: Path) -> None:
    hidden = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        f"from trivet.cli import main; sys.exit(main(['run', {str(model)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden],
        check=False,
        capture_output=True,
        text=True,
        env=environment(cache),
    )
    assert done.returncode == 1
    assert "pip install 'trivet[onnxruntime]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_that_of_the_package(cache: Path) -> None:
    assert trivet(cache, "--version").out == f"trivet {package.__version__}\n"


def test_help_lists_the_commands_and_imports_no_framework(cache: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", COMMAND, "--help"],
        check=True,
        capture_output=True,
        text=True,
        env=environment(cache),
    )
    for name in ["run", "warm", "why", "ls", "show", "stats", "verify", "gc", "drop", "doctor"]:
        assert re.search(rf"^  {name} ", done.stdout, re.MULTILINE), name
    imported = set(re.findall(r"\| +(\S+)$", done.stderr, re.MULTILINE))
    assert "trivet.cli" in imported
    assert not imported & {"numpy", "lmdb", "onnxruntime", "openvino", "rich.console"}


def test_a_reader_that_goes_away_ends_it_quietly(model: Path, cache: Path) -> None:
    assert trivet(cache, "run", model).code == 0
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [COMMAND, "ls", "--json"],
        check=False,
        stdout=write,
        stderr=subprocess.PIPE,
        env=environment(cache),
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_interrupt_ends_it_with_130(model: Path, cache: Path) -> None:
    # A shell starts background jobs, and so what they start, with interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    endless = model.with_name("nobody-writes-here.npy")
    os.mkfifo(endless)
    running = subprocess.Popen(
        [COMMAND, "run", str(model), "--input", f"x={endless}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(cache),
    )
    signal.signal(signal.SIGINT, before)
    writing = []

    def it_reads() -> bool:
        with contextlib.suppress(OSError):  # there is no reader yet
            writing.append(os.open(endless, os.O_WRONLY | os.O_NONBLOCK))
        return bool(writing)

    try:
        eventually(it_reads, "the input is read")
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
        for each in writing:
            os.close(each)
    assert (running.returncode, out, err) == (130, b"", b"")


def test_piped_output_has_no_escape_codes_and_a_terminal_gets_80_columns(
    model: Path, cache: Path
) -> None:
    assert trivet(cache, "run", model, "--release", "2026.11").code == 0
    flawed = cache / "activity.jsonl"
    flawed.write_bytes(flawed.read_bytes() * 3)  # no hit in three loads: something to say
    for arguments in (["ls"], ["doctor"], ["why", model, "--backend", "openvino"]):
        piped = trivet(cache, *arguments)
        assert "\x1b" not in piped.out + piped.err
        code, screen = in_a_terminal(cache, *arguments)
        assert code == piped.code
        assert "\x1b[" in screen
        finished = screen.rpartition("\x1b[2K")[2]  # the progress bar was wiped away
        lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", each) for each in finished.splitlines()]
        assert max(map(len, lines)) <= 80
        words = set(piped.out.split()) & {"net.onnx", "no-hit", "would"}
        assert all(any(word in line for line in lines) for word in words)


def test_progress_goes_to_a_terminal_only(model: Path, cache: Path) -> None:
    assert trivet(cache, "run", model).code == 0
    code, screen = in_a_terminal(cache, "verify")
    assert code == 0
    assert "verifying" in screen
    assert trivet(cache, "verify").err == ""


def test_json_is_all_that_stdout_gets_even_where_something_is_wrong(
    model: Path, cache: Path
) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    done = trivet(cache, "run", model, "--json")
    assert done.code == 0
    assert json.loads(done.out)["source"] == "compiled"
    assert "can be written by other users" in done.err
    refused = trivet(cache, "warm", model, "--json")
    assert refused.code == 1
    assert refused.json()["error"]["hint"]
