"""``trivet exec`` and programs that spoil what it reads: it ends, and as the program did."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.cli import COMMAND, environment
from tests.support.engine import eventually
from tests.support.toys import COMPILE, GUARD, python, run, start, toy

from trivet import Cache
from trivet.cache import ArtifactLease
from trivet.keys import Key

SPOILS = {
    "a pipe for a report": "os.mkfifo(here + '/reports/1-a.json')",
    "a device for a report": "os.symlink('/dev/zero', here + '/reports/1-a.json')",
    "a huge report": "huge(here + '/reports/1-a.json')",
    "a deep report": "open(here + '/reports/1-a.json', 'w').write('[' * 10**6)",
    "no report": "open(here + '/reports/1-a.json', 'w').write('7')",
    "a huge file": "huge(toy + '/huge')",
    "a folder elsewhere": "os.rename(toy, here + '/t'); os.symlink(here + '/t', toy)",
    "a pipe for all reports": "os.rename(here + '/reports', here + '/r')\n"
    "os.mkfifo(here + '/reports')",
}
HARMLESS = {
    "a pipe among the files": "os.mkfifo(toy + '/pipe')",
    "a pipe for the lock": "os.unlink(here + '/lock'); os.mkfifo(here + '/lock')",
    "no socket": "os.unlink(here + '/socket')",
    "who connects and says nothing": "import socket; s = socket.socket(socket.AF_UNIX); "
    "s.connect(here + '/socket')",
    "who asks for nonsense": "import socket; s = socket.socket(socket.AF_UNIX); "
    "s.connect(here + '/socket'); s.send(b'[]' + b'\\n')",
}
PLACES = """
here, toy = os.environ["TRIVET_EXEC_RUN"], os.environ["TOY_CACHE"]
def huge(path):
    with open(path, "w") as file:
        file.truncate(9 << 40)  # nothing but a hole
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", [*SPOILS, *HARMLESS])
def test_whatever_the_program_leaves_there_it_ends_as_it_would(how: str, tmp_path: Path) -> None:
    code = COMPILE + PLACES + {**SPOILS, **HARMLESS}[how] + "\nsys.exit(3)"
    done = run(tmp_path / "c", [*python(code), "a"], *GUARD)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert ("not kept" in done.stderr) == (how in SPOILS), done.stderr
    assert toy(tmp_path / "c", "a")[0] == ["miss a" if how in SPOILS else "hit a code of a"]
    assert list((tmp_path / "c" / "runs").glob("run-*")) == []


KEEPER = """
siblings = open(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read().split()
(keeper,) = {*map(int, siblings)} - {os.getpid()}
os.kill(keeper, 9)
sys.exit(3)
"""


def test_a_program_outlives_what_keeps_its_cache(tmp_path: Path) -> None:
    done = run(tmp_path / "c", [*python(COMPILE + KEEPER), "a"], *GUARD)
    assert (done.returncode, done.stdout) == (3, "miss a\n")
    assert "not guarded: the process that keeps the cache ended by SIGKILL" in done.stderr
    assert list((tmp_path / "c" / "runs").glob("run-*")) == []


INDEX = """
import trivet
index = os.environ["TRIVET_CACHE_DIR"] + "/index/data.mdb"
size = os.path.getsize(index)
if {random}:
    open(index, "r+b").write(os.urandom(size))
else:
    os.truncate(index, 0)  # whoever looks into what it has mapped gets a SIGBUS
print(trivet.checkpoint())
sys.exit(3)
"""


@pytest.mark.parametrize("random", [False, True])
def test_a_damaged_index_kills_no_program(random: bool, tmp_path: Path) -> None:
    toy(tmp_path / "c", "b")
    code = COMPILE + INDEX.format(random=random)
    done = run(tmp_path / "c", [*python(code), "a"], *GUARD)
    assert done.returncode == 3
    assert random or "not guarded: the process that keeps the cache ended by SIG" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(60)
def test_who_is_asked_to_end_while_it_keeps_ends_soon(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    with Cache.open(tmp_path / "c", strict=True) as cache:
        (entry,) = cache.entries("folder/1")
        update = Key("folder-update/1", {"folder": entry.key.digest})
        held = cache.acquire_files(update)  # what is kept has to wait for
        assert isinstance(held, ArtifactLease)
        code = COMPILE + "\nprint(os.getpid(), flush=True)"
        process = start(tmp_path / "c", [*python(code), "b"], *GUARD)
        assert process.stdout is not None
        assert process.stdout.readline() == "miss b\n"
        pid = int(process.stdout.readline())
        eventually(lambda: not Path(f"/proc/{pid}").exists(), "the program has ended")
        began = time.monotonic()

        def has_ended() -> bool:
            process.send_signal(signal.SIGTERM)
            return process.poll() is not None

        eventually(has_ended, "so has the command")
        assert time.monotonic() - began < 5
        assert process.returncode == 0  # as the program
        held.abandon()
    _, err = process.communicate()
    assert "it was to end before all was kept" in err
    assert os.listdir(tmp_path / "c" / "runs") == ["lock"]


def test_it_ends_also_where_nobody_reads_what_it_says(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, bytes(4096)):
            pass
    os.set_blocking(writing, True)
    command = [COMMAND, "exec", *GUARD, "--", *python(COMPILE + "\nsys.exit(3)"), "a"]
    words, variables = list(map(str, command)), environment(tmp_path / "c")
    assert subprocess.call(words, env=variables, stderr=writing, timeout=60) == 3
    os.close(reading)
    os.close(writing)
    assert toy(tmp_path / "c", "a")[0] == ["hit a code of a"]
