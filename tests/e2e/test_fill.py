"""``trivet fill``: from a folder and from lines, by several processes, through a kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.support.cli import COMMAND, environment, trivet
from tests.support.engine import eventually

from trivet import Cache, Hit, Key
from trivet.cache.fill import BATCH
from trivet.codecs import Bytes
from trivet.errors import StoreError
from trivet.stores.host import HostStore
from trivet.warm import fill
from trivet.warm.filling_child import SourceError

CODEC = Bytes()
APP = """
from pathlib import Path
from trivet import Cache
from trivet.values import memo

cache = Cache.open(Path(__file__).parent / "cache", strict=True)

@memo(cache)
def pair(text: str, times: int = 1) -> tuple[str, int]:
    raise AssertionError("it is kept")

@memo(cache)
def unsaid(text):
    return text
"""


def key(n: int) -> Key:
    return Key("value/1", {"n": n})


def value(n: int) -> bytes:
    return n.to_bytes(4, "little") * 30


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with 5 batches of values."""
    folder = tmp_path / "source"
    with Cache.open(folder, strict=True) as cache:
        cache.fill(((key(n), value(n), 1.0) for n in range(5 * BATCH)), CODEC)
    return folder


def entries(folder: Path) -> int:
    with Cache.open(folder, strict=True) as cache:
        return sum(each.key.space == "value/1" for each in cache.entries())


def assert_filled(folder: Path) -> None:
    with Cache.open(folder, strict=True) as cache:
        for n in range(0, 5 * BATCH, 7):
            found = cache.get(key(n), CODEC)
            assert isinstance(found, Hit)
            assert found.value == value(n)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_folder_is_filled_from_another(source: Path, tmp_path: Path, jobs: int) -> None:
    target = tmp_path / "target"
    done = trivet(target, "fill", source, "--jobs", jobs, "--json")
    assert done.code == 0, done.err
    assert done.json()["written"] == 5 * BATCH
    assert_filled(target)
    again = trivet(target, "fill", source, "--jobs", jobs)
    assert "0 entries written" in again.out
    assert f"{5 * BATCH} kept before" in again.out


def test_a_killed_command_goes_on_where_it_was(source: Path, tmp_path: Path) -> None:
    before = 0
    for number in range(10):  # until a kill comes in the middle
        target = tmp_path / str(number)
        kill_in_the_middle(source, target)
        before = entries(target)
        if 0 < before < 5 * BATCH:
            break
    assert 0 < before < 5 * BATCH
    done = trivet(target, "fill", source, "--jobs", "2", "--json")
    assert done.code == 0, done.err
    assert done.json()["rows"] + before == 5 * BATCH, "what was done is not looked at again"
    assert done.json()["written"] + before == 5 * BATCH
    assert_filled(target)
    assert trivet(target, "verify").code == 0


def kill_in_the_middle(source: Path, target: Path) -> None:
    """Kill -9 a command that fills ``target``, soon after its first batch."""
    with contextlib.closing(HostStore.open(target)) as store:
        command = [COMMAND, "fill", str(source), "--jobs", "2"]
        child = subprocess.Popen(command, env=environment(target), start_new_session=True)
        try:
            eventually(lambda: store.stats().entries > 0, "it begins")
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
    eventually(lambda: _is_still(target), "its processes end with it")


def _is_still(folder: Path) -> bool:
    running = folder / "running"
    return not any(_is_held(each) for each in running.iterdir())


def _is_held(path: Path) -> bool:
    import fcntl

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module ``filled_app``, in which commands run."""
    (tmp_path / "filled_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(path: Path, count: int) -> None:
    with path.open("w") as file:
        for n in range(count):
            row = {"args": [f"text {n}"], "value": [f"TEXT {n}", n], "cost": 0.5}
            file.write(json.dumps(row) + "\n")
        row = {"args": ["text"], "named": {"times": 2}, "value": ["TEXT", 2]}
        file.write(json.dumps(row))  # without an end of line


ASK = """
from filled_app import cache, pair
for n in range({count}):
    assert pair(f"text {{n}}") == (f"TEXT {{n}}", n), n
assert pair("text", times=2) == pair("text", 2) == ("TEXT", 2)
print(pair.look("text 1").descriptor.cost, cache.store.stats().entries)
"""


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_function_is_given_results_from_lines(app: Path, jobs: int) -> None:
    lines(app / "rows.jsonl", 500)
    done = trivet(app / "unused", "fill", "rows.jsonl", "filled_app:pair", "--jobs", jobs)
    assert done.code == 0, done.err
    assert "501 entries written" in done.out
    asked = subprocess.run(
        [Path(COMMAND).parent / "python", "-c", ASK.format(count=500)],
        capture_output=True,
        text=True,
        check=False,
        cwd=app,
    )
    assert asked.stdout == "0.5 501\n", asked.stderr
    again = trivet(app / "unused", "fill", "rows.jsonl", "filled_app:pair", "--jobs", jobs)
    assert "0 entries written and read back" in again.out
    assert "501 kept before" in again.out


@pytest.mark.parametrize(
    ("row", "target", "says"),
    [
        ('{"args": ["x"], "value": [1, 2]}', "filled_app:pair", "line at byte 0"),
        ('{"args": ["x"]}', "filled_app:pair", "value"),
        ('{"args": ["x", 1, 2], "value": ["x", 2]}', "filled_app:pair", "line at byte 0"),
        ('{"args": ["x"], "value": ["x", 2], "cost": -1}', "filled_app:pair", "$.cost"),
        ('{"args": ' + "[" * 100_000, "filled_app:pair", "line at byte 0"),
        ("", "filled_app:unsaid", "annotate what it returns"),
        ("", "filled_app:APP", "there is no filled_app:APP"),
        ("", "filled_app:memo", "no function with @memo"),
        ("", "no_such_module:f", "no_such_module"),
        ("", "", "is no cache folder"),
    ],
)
def test_what_can_not_be_filled_in_is_said(app: Path, row: str, target: str, says: str) -> None:
    (app / "rows.jsonl").write_text(row)
    done = trivet(app / "unused", "fill", "rows.jsonl", *([target] if target else []))
    assert done.code == 1
    assert says in done.err


def test_an_error_in_one_of_several_processes_is_told(app: Path) -> None:
    lines(app / "rows.jsonl", 300)
    with (app / "rows.jsonl").open("a") as file:
        file.write("\nnonsense")
    done = trivet(app / "unused", "fill", "rows.jsonl", "filled_app:pair", "--jobs", 2)
    assert done.code == 1
    assert "the line at byte" in done.err


def test_a_folder_is_not_filled_from_itself(source: Path) -> None:
    with pytest.raises((SourceError, StoreError)):
        fill(source, cache=source)


def test_what_was_invalidated_since_a_filling_was_interrupted_is_filled_in_again(app: Path) -> None:
    lines(app / "rows.jsonl", BATCH)
    with (app / "rows.jsonl").open("a") as file:
        file.write("\nnonsense")
    fill = ("fill", "rows.jsonl", "filled_app:pair")
    assert trivet(app / "unused", *fill).code == 1
    with Cache.open(app / "cache", strict=True) as cache:
        cache.invalidate("function=filled_app.pair")
    assert trivet(app / "unused", *fill).code == 1
    ask = "from filled_app import pair\nprint(pair.look('text 1').value)"
    python = Path(COMMAND).parent / "python"
    asked = subprocess.run([python, "-c", ask], capture_output=True, text=True, cwd=app, check=True)
    assert asked.stdout == "('TEXT 1', 1)\n"
