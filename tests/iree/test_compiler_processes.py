"""Compilers in processes of their own: what their ends mean for the caller."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.iree.children import Act, Seen

from trivet.errors import BackendError
from trivet.plans.backend import FailureKind
from trivet.plans.backends import Iree
from trivet.plans.backends.child import CompilerDied, load_arrays, run_child, save_arrays

CHILD = "tests.iree.children"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


def run(folder: Path, how: str, log: Path | None = None) -> Seen:
    return run_child(CHILD, Act(how=how, log=str(log or "")), Seen, folder)


def test_a_child_works_in_the_scratch_folder_and_may_chatter(tmp_path: Path) -> None:
    seen = run(tmp_path, "chatter")
    assert (seen.folder, seen.temporary) == (str(tmp_path), str(tmp_path))


@pytest.mark.parametrize("how", ["killed", "memory", "LLVM memory", "disk", "exit"])
def test_what_the_machine_lacked_is_never_recorded(tmp_path: Path, how: str) -> None:
    with pytest.raises((CompilerDied, MemoryError, OSError)) as caught:
        run(tmp_path, how)
    assert Iree().classify(caught.value) is FailureKind.TRANSIENT


def test_a_killed_compiler_is_not_started_again(tmp_path: Path, log: Path) -> None:
    with pytest.raises(CompilerDied, match="SIGKILL"):
        run(tmp_path, "killed", log)
    assert log.read_text() == "run\n"


def test_a_crash_is_tried_once_more(tmp_path: Path, log: Path) -> None:
    assert run(tmp_path, "crash once", log).runs == 2


def test_a_crash_that_comes_twice_is_the_models(tmp_path: Path, log: Path) -> None:
    with pytest.raises(CompilerDied, match="SIGSEGV") as caught:
        run(tmp_path, "crash", log)
    assert log.read_text() == "run\nrun\n"
    assert Iree().classify(caught.value) is FailureKind.DETERMINISTIC


def test_the_text_of_an_error_is_what_the_compiler_said_of_it(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"can't compile\n.*no such operator$") as caught:
        run(tmp_path, "refuse")
    assert Iree().classify(caught.value) is FailureKind.DETERMINISTIC


def test_what_is_not_installed_is_named_with_the_command_and_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"trivet\[iree\]") as caught:
        run(tmp_path, "missing")
    assert Iree().classify(caught.value) is FailureKind.TRANSIENT


def test_a_child_ends_with_the_process_that_wanted_it(tmp_path: Path) -> None:
    """A compiler without a caller would go on for minutes with gigabytes."""
    code = """
import os, sys
from trivet.plans.backends import child
reader, writer = os.pipe()
os.set_inheritable(writer, True)
if os.fork() == 0:
    os.close(reader)
    # A child that waits for ever: its job never ends, since this process never closes the pipe.
    import subprocess
    subprocess.Popen(
        [sys.executable, "-c", sys.argv[1], str(os.getpid())], stdin=subprocess.PIPE,
        pass_fds=[writer],
    )
    os._exit(0)
os.close(writer)
os.wait()
print(os.read(reader, 1))  # returns when the last holder of the pipe is gone
"""
    waiting = (
        "from trivet.plans.backends import child; child.die_with_parent(); "
        "import signal; signal.pause()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, waiting],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "b''\n", done.stderr


def test_arrays_cross_under_any_name(tmp_path: Path) -> None:
    import numpy as np

    arrays = {"file": np.ones(2), "a/b:0": np.zeros((2, 2), np.int8), "": np.array(True)}
    save_arrays(tmp_path / "arrays.npz", arrays)
    found = load_arrays(tmp_path / "arrays.npz")
    assert {name: each.tolist() for name, each in found.items()} == {
        name: each.tolist() for name, each in arrays.items()
    }
