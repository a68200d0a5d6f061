"""What is learnt of a command's files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trivet import Cache
from trivet.keys import Key
from trivet.plans.folders import Interpreter
from trivet.plans.folders.learned import Learned, Places

BASE = Key("folder/1", {"framework": "toy"})
COMMAND = (b"serve",)

LEARN = """
import sys
from trivet import Cache
from trivet.keys import Key
from trivet.plans.folders.learned import Learned
with Cache.open(sys.argv[1], strict=True) as cache:
    learned = Learned(cache, (b"serve",))
    sys.stdin.readline()
    learned.learn(Key("folder/1", {"framework": "toy"}), set(), {sys.argv[2]})
"""


def test_runs_that_learn_at_the_same_time_keep_all(tmp_path: Path) -> None:
    names = [f"{{base}}/{number}.so" for number in range(5)]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", LEARN, str(tmp_path / "c"), name], stdin=subprocess.PIPE
        )
        for name in names
    ]
    for each in runs:
        each.communicate(b"\n", timeout=60)
        assert each.returncode == 0
    with Cache.open(tmp_path / "c", strict=True) as cache:
        assert Learned(cache, COMMAND).installed(BASE, set()) == names


def test_a_command_that_never_ran_loads_what_packages_installed(tmp_path: Path) -> None:
    with Cache.open(tmp_path / "c", strict=True) as cache:
        Learned(cache, COMMAND).learn(BASE, {"/own/a.so"}, {"{base}/b.so"})
        for command, own in ((b"train",), []), (COMMAND, ["/own/a.so"]):
            assert Learned(cache, command).own(BASE) == own
            assert Learned(cache, command).installed(BASE, {*own}) == ["{base}/b.so"]


def test_what_a_program_brings_now_is_all_that_counts(tmp_path: Path) -> None:
    """What it brought before has a folder of its own, whose key stays what it was."""
    with Cache.open(tmp_path / "c", strict=True) as cache:
        learned = Learned(cache, COMMAND)
        for own, installed in ({"a"}, {"x"}), ({"b"}, {"y"}), ({"b"}, {"z"}):
            learned.learn(BASE, own, installed)
        assert learned.own(BASE) == ["b"]
        assert learned.installed(BASE, {"a"}) == ["x"]
        assert learned.installed(BASE, {"b"}) == ["x", "y", "z"]


def test_a_name_that_is_no_unicode_is_not_learnt(tmp_path: Path) -> None:
    with Cache.open(tmp_path / "c", strict=True) as cache, pytest.raises(ValueError):
        Learned(cache, COMMAND).learn(BASE, {"/own/\udcf6.so"}, set())


def test_files_have_the_names_that_they_have_on_other_hosts() -> None:
    python = Interpreter(
        executable="/venv/bin/python",
        version="3",
        tag="cpython-3",
        path=[],
        prefix="/app/venv",
        base="/usr/local",
    )
    places = Places.of(python, "/app")
    for path, name in {
        "/app/venv/lib/a.so": "{prefix}/lib/a.so",
        "/app/kernels/b.so": "{cwd}/kernels/b.so",
        "/usr/local/lib/c.so": "{base}/lib/c.so",
        "/usr/lib/d.so": "/usr/lib/d.so",
    }.items():
        assert places.name(path) == name
        assert places.path(name) == path
