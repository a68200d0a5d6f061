"""``trivet exec`` with real programs: what it passes on, and what it keeps."""

from __future__ import annotations

import errno
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cli import COMMAND, environment
from tests.support.disks import reachable
from tests.support.engine import eventually
from tests.support.toys import COMPILE, GUARD, LIBRARIES, python, run, start, toy

from trivet import Cache
from trivet.cli import guarded

# -- what passes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 2, 77, 255])
def test_the_exit_code_is_that_of_the_program(code: int, tmp_path: Path) -> None:
    assert run(tmp_path / "c", ["sh", "-c", f"exit {code}"]).returncode == code


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "ABRT", "INT", "PIPE"])
def test_a_program_killed_by_a_signal_looks_killed_by_it(name: str, tmp_path: Path) -> None:
    done = run(tmp_path / "c", ["sh", "-c", f"kill -{name} $$"])
    assert done.returncode == -getattr(signal, f"SIG{name}")


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    done = run(tmp_path / "c", ["no-such-program"])
    assert done.returncode == 127
    assert "no-such-program: No such file" in done.stderr
    (tmp_path / "data").write_text("not a program")
    assert run(tmp_path / "c", [tmp_path / "data"]).returncode == 126


def test_input_and_output_are_the_programs_own(tmp_path: Path) -> None:
    process = start(tmp_path / "c", ["cat"], stdin=subprocess.PIPE)
    out, err = process.communicate("what was said\n", timeout=60)
    assert (process.returncode, out, err) == (0, "what was said\n", "")


def test_arguments_are_passed_as_they_are(tmp_path: Path) -> None:
    odd = ["--json", "-h", "a b", "", "--", "*", "$HOME"]
    done = run(tmp_path / "c", [*python("import sys; print(sys.argv[1:])"), *odd])
    assert done.stdout == f"{odd}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT])
def test_a_signal_for_the_command_reaches_the_program(number: int, tmp_path: Path) -> None:
    code = f"""
import signal, sys
def got(number, frame):
    print("got", number, flush=True)
    sys.exit(5)
signal.signal({number}, got)
print("up", flush=True)
while True:
    signal.pause()
"""
    process = start(tmp_path / "c", python(code))
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == (f"got {number}\n", 5)


def test_the_program_dies_with_the_command(tmp_path: Path) -> None:
    code = "import os, signal; print(os.getpid(), flush=True)\nwhile True: signal.pause()"
    process = start(tmp_path / "c", python(code))
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait(60)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the program is gone")
    process.communicate()


def test_no_signal_is_ignored_or_blocked_for_the_program(tmp_path: Path) -> None:
    """Python ignores some, and the command blocks them all while it waits."""
    asks: list[object] = ["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"]
    alone = subprocess.run(list(map(str, asks)), capture_output=True, text=True, check=True)
    assert run(tmp_path / "c", asks).stdout == alone.stdout


SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
stopped = os.waitpid(job, os.WUNTRACED)[1]
print("stopped", os.WIFSTOPPED(stopped), flush=True)
os.tcsetpgrp(0, job)
os.killpg(job, signal.SIGCONT)
ended = os.waitpid(job, 0)[1]
print("ended", os.waitstatus_to_exitcode(ended), flush=True)
"""


@pytest.mark.timeout(60)
def test_a_terminal_stops_and_continues_both(tmp_path: Path) -> None:
    """Ctrl-Z stops the job, as a shell with job control sees it, and it goes on when told to."""
    code = "import sys; print('up', flush=True); print('read', sys.stdin.readline(), flush=True)"
    command = [COMMAND, "exec", "--", sys.executable, "-c", code]
    pid, terminal = pty.fork()
    if pid == 0:
        shell = [sys.executable, "-c", SHELL, *command]
        os.execve(sys.executable, shell, environment(tmp_path / "c"))
    try:
        _read_until(terminal, b"up")
        os.write(terminal, b"\x1a")
        _read_until(terminal, b"stopped True")
        os.write(terminal, b"on\n")
        assert b"read on" in _read_until(terminal, b"ended 0")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _read_until(terminal: int, text: bytes) -> bytes:
    said = b""
    while text not in said:
        said += os.read(terminal, 1000)
    return said


def test_a_script_that_names_no_interpreter_is_the_shells(tmp_path: Path) -> None:
    """So it is for ``env``, ``nice`` and every shell."""
    script = tmp_path / "script"
    script.write_text('echo "$0 $1"; exit 7\n')
    script.chmod(0o700)
    done = run(tmp_path / "c", [script, "one"])
    assert (done.returncode, done.stdout) == (7, f"{script} one\n")


# A made-up user, who may look everywhere, as into the folder of this Python.
AS_A_STRANGER = (
    *("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
)


@pytest.mark.needs("root")
def test_a_user_without_a_home_has_the_program_all_the_same(tmp_path: Path) -> None:
    """As those of containers that are made up when they start."""
    variables = environment(tmp_path / "c")
    for name in ("TRIVET_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        variables.pop(name, None)
    command = [*AS_A_STRANGER, COMMAND, "exec", *GUARD, "--", sys.executable, "-c", "exit(7)"]
    with reachable() as place:
        place.chmod(0o777)
        variables["TMPDIR"] = str(place)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    assert "this user has no home" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_name_is_of_no_program(tmp_path: Path) -> None:
    done = run(tmp_path / "c", [""])
    assert (done.returncode, done.stderr) == (127, "trivet: : No such file or directory\n")


ORPHANS = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.1)  # outlives its parent
        os._exit(0)
    os.wait()

def states():
    for each in filter(str.isdigit, os.listdir("/proc")):
        with open(f"/proc/{each}/stat") as file:
            yield file.read().rpartition(")")[2].split()[0]

deadline = time.monotonic() + 20
while len(found := [*states()]) > 3 and time.monotonic() < deadline:
    time.sleep(0.05)
print(len(found), "Z" in found)
"""


@pytest.mark.needs("root")
def test_in_a_container_orphans_are_waited_for(tmp_path: Path) -> None:
    """The command is the first process there, in the place of a program that may have done so."""
    command = [COMMAND, "exec", "--", sys.executable, "-c", ORPHANS]
    alone = ["unshare", "--pid", "--fork", "--mount-proc", *command]
    done = subprocess.run(
        alone, env=environment(tmp_path / "c"), capture_output=True, text=True, check=True
    )
    assert done.stdout == "3 False\n", done.stderr  # the command, what keeps the cache, the program


def test_a_program_starts_also_where_there_may_be_no_second_process(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under ``ulimit -u``: without the guard it needs none."""
    if (child := os.fork()) == 0:

        def no_more() -> int:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

        monkeypatch.setattr(os, "fork", no_more)
        try:
            guarded.run(
                guarded.ExecOptions(("sh", "-c", "echo ran; exit 7"), cache_dir=tmp_path / "c")
            )
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    out, err = capfd.readouterr()
    assert out == "ran\n"
    assert "not guarded: " in err
    assert not [*tmp_path.glob("c/runs/run-*")]


def test_a_pythons_name_alone_makes_no_program_a_python(tmp_path: Path) -> None:
    """To be asked what it is, it would be run."""
    program = tmp_path / "python_train.sh"
    program.write_text(f"#!/bin/sh\necho ran >> {tmp_path}/log\n")
    program.chmod(0o755)
    run(tmp_path / "c", [program])
    assert (tmp_path / "log").read_text() == "ran\n"


@pytest.mark.parametrize("sink", ["/dev/full", "&-"])
def test_an_effect_that_cannot_be_told_changes_nothing(sink: str, tmp_path: Path) -> None:
    line = "exec \"$0\" exec --folder TOY_CACHE --salt x=1 -- sh -c 'echo >$TOY_CACHE/a; exit 3'"
    done = subprocess.run(
        ["sh", "-c", f"{line} 2>{sink}", COMMAND], env=environment(tmp_path / "c"), check=False
    )
    assert done.returncode == 3


def in_its_place(prepare: str, cache: Path, script: str) -> subprocess.CompletedProcess[str]:
    """The command in a process that did something before."""
    code = f"import os, signal, sys\n{prepare}\nos.execv(sys.argv[1], sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, COMMAND, "exec", *GUARD, "--", "sh", "-c", script],
        env=environment(cache),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_whoever_ignores_the_end_of_children_gets_the_exit_code(tmp_path: Path) -> None:
    ignore = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    assert in_its_place(ignore, tmp_path / "c", "exit 3").returncode == 3


def test_an_alarm_set_before_ends_the_program(tmp_path: Path) -> None:
    done = in_its_place("signal.alarm(3)", tmp_path / "c", "exec cat /dev/zero > /dev/null")
    assert done.returncode == -signal.SIGALRM


def test_a_program_that_is_stopped_alone_goes_on_alone(tmp_path: Path) -> None:
    process = start(
        tmp_path / "c", ["sh", "-c", "echo $$; read line; exit 4"], stdin=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    pid = int(process.stdout.readline())

    def state(of: int) -> str:
        return Path(f"/proc/{of}/stat").read_text().rpartition(")")[2].split()[0]

    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: state(pid) == "T", "the program is stopped")
    os.kill(pid, signal.SIGCONT)
    process.communicate("\n", timeout=60)
    assert process.returncode == 4


@pytest.mark.timeout(60)
def test_whatever_answers_where_readiness_is_asked_the_program_is_served(tmp_path: Path) -> None:
    """The thread that looks also answers the program's own requests."""
    code = """
import os, sys, trivet
sys.stdin.readline()
open(os.environ["TOY_CACHE"] + "/a", "w").write("1")
print(trivet.checkpoint())
"""
    with socket.create_server(("127.0.0.1", 0)) as odd:
        ready = f"http://127.0.0.1:{odd.getsockname()[1]}/health"
        process = start(
            tmp_path / "c",
            python(code),
            *GUARD, "--ready", ready,
            stdin=subprocess.PIPE,
        )  # fmt: skip
        connection, _ = odd.accept()
        with connection:
            connection.sendall(b"SSH-2.0-odd\r\n")
        out, err = process.communicate("\n", timeout=50)
    assert (out, "Traceback" in err) == ("True\n", False)


# -- what is kept ----------------------------------------------------------------------------------


def test_the_second_run_finds_what_the_first_compiled(tmp_path: Path) -> None:
    said, told = toy(tmp_path / "c", "a", "b")
    assert said == ["miss a", "miss b"]
    assert "nothing restored (no folder is kept under this key)" in told
    assert "kept 2 files" in told
    said, told = toy(tmp_path / "c", "a", "b")
    assert said == ["hit a code of a", "hit b code of b"]
    assert "restored 2 files" in told


def test_what_later_runs_add_is_kept_with_the_rest(tmp_path: Path) -> None:
    for names in (["a"], ["b"], ["c", "a"]):
        toy(tmp_path / "c", *names)
    said, _ = toy(tmp_path / "c", "a", "b", "c")
    assert [line.split()[0] for line in said] == ["hit"] * 3


def test_two_runs_that_add_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    code = COMPILE + "\nsys.stdout.flush(); sys.stdin.readline()"
    runs = [
        start(tmp_path / "c", [*python(code), name], *GUARD, stdin=subprocess.PIPE)
        for name in ("b", "c")
    ]
    for each in runs:
        assert each.stdout is not None
        assert each.stdout.readline().startswith("miss")
    for each in runs:
        each.communicate("\n", timeout=60)
    said, _ = toy(tmp_path / "c", "a", "b", "c")
    assert [line.split()[0] for line in said] == ["hit"] * 3


def test_other_salts_and_other_inputs_are_other_folders(tmp_path: Path) -> None:
    source = tmp_path / "kernel.txt"
    source.write_text("one")
    by_input = ("--folder", "TOY_CACHE", "--input", source)
    assert toy(tmp_path / "c", "a", options=by_input)[0] == ["miss a"]
    assert toy(tmp_path / "c", "a", options=by_input)[0] == ["hit a code of a"]
    source.write_text("two")
    assert toy(tmp_path / "c", "a", options=by_input)[0] == ["miss a"]
    assert toy(tmp_path / "c", "a")[0] == ["miss a"]
    assert toy(tmp_path / "c", "a", options=("--folder", "TOY_CACHE", "--salt", "toy=2"))[0] == [
        "miss a"
    ]


def test_files_of_one_name_in_two_places_are_two_inputs(tmp_path: Path) -> None:
    first, second = tmp_path / "1" / "k", tmp_path / "2" / "k"
    for each in (first, second):
        each.parent.mkdir()
        each.write_text("same")
    options = ("--folder", "TOY_CACHE", "--input", first, "--input", second)
    toy(tmp_path / "c", "a", options=options)
    first.write_text("changed")
    assert toy(tmp_path / "c", "a", options=options)[0] == ["miss a"]


def test_a_folder_of_which_nothing_is_said_is_wrong_usage(tmp_path: Path) -> None:
    done = run(tmp_path / "c", ["true"], "--folder", "TOY_CACHE")
    assert done.returncode == 2
    assert "what do the things in it depend on" in done.stderr.replace("\n", " ").replace("│", "")


LOADS = "import ctypes, sys; ctypes.CDLL(sys.argv.pop(1))" + COMPILE


def test_a_library_that_the_program_brings_is_part_of_the_key_once_it_was_seen(
    tmp_path: Path,
) -> None:
    """Frameworks' caches know an operator's name and not what implements it."""
    library = tmp_path / "operators.so"
    builds = list(LIBRARIES.values())
    said = []
    for build in (builds[0], builds[0], builds[1], builds[1], builds[0]):
        library.unlink(missing_ok=True)
        shutil.copyfile(build, library)
        done = run(tmp_path / "c", [*python(LOADS), library, "a"], *GUARD)
        said.append(done.stdout.split()[0])
    assert said == ["miss", "hit", "miss", "hit", "hit"]


def test_a_library_that_an_argument_chooses_is_told_apart_from_the_first_run_on(
    tmp_path: Path,
) -> None:
    said = []
    for name in ("blake3", "lmdb", "blake3", "lmdb"):
        library = tmp_path / f"{name}.so"
        if not library.exists():
            shutil.copyfile(LIBRARIES[name], library)
        done = run(tmp_path / "c", [*python(LOADS), library, "a"], *GUARD)
        said.append(done.stdout.split()[0])
    assert said == ["miss", "miss", "hit", "hit"]


def test_a_damaged_file_is_not_restored_and_is_made_again(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    (kept,) = (tmp_path / "c" / "artifacts").rglob("a")
    kept.chmod(0o600)
    kept.write_text("coed of a")
    said, told = toy(tmp_path / "c", "a")
    assert said == ["miss a"]
    assert "damaged" in told
    assert toy(tmp_path / "c", "a")[0] == ["hit a code of a"]


def test_eight_at_once_compile_once(tmp_path: Path) -> None:
    runs = [start(tmp_path / "c", [*python(COMPILE), "a"], *GUARD) for _ in range(8)]
    said = [each.communicate(timeout=120)[0] for each in runs]
    assert sorted(said) == ["hit a code of a\n"] * 7 + ["miss a\n"]


def test_runs_of_other_commands_do_not_wait_for_one_that_never_uses_a_folder(
    tmp_path: Path,
) -> None:
    idle = start(tmp_path / "c", ["cat"], *GUARD, stdin=subprocess.PIPE)
    assert idle.stdin is not None
    assert idle.stdout is not None
    idle.stdin.write("up\n")
    idle.stdin.flush()
    assert idle.stdout.readline() == "up\n"
    assert toy(tmp_path / "c", "a", options=(*GUARD, "--wait", "3600"))[0] == ["miss a"]
    idle.communicate(timeout=60)


def test_who_does_not_want_to_wait_goes_on_alone(tmp_path: Path) -> None:
    slow = start(
        tmp_path / "c",
        [*python(COMPILE + "\nsys.stdout.flush(); sys.stdin.readline()"), "a"],
        *GUARD,
        stdin=subprocess.PIPE,
    )
    assert slow.stdout is not None
    assert slow.stdout.readline() == "miss a\n"
    assert toy(tmp_path / "c", "a", options=(*GUARD, "--wait", "0"))[0] == ["miss a"]
    slow.communicate("\n", timeout=60)


def test_a_killed_filler_leaves_the_filling_to_the_next(tmp_path: Path) -> None:
    code = COMPILE + "\nsys.stdout.flush(); sys.stdin.readline()"
    killed = start(tmp_path / "c", [*python(code), "a"], *GUARD, stdin=subprocess.PIPE)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "miss a\n"
    killed.kill()
    assert toy(tmp_path / "c", "a")[0] == ["miss a"]
    assert toy(tmp_path / "c", "a")[0] == ["hit a code of a"]
    killed.communicate()


SERVE = """
import sys
from pathlib import Path
Path(sys.argv[-1]).write_text("up")
sys.stdin.readline()
"""


def test_a_server_is_captured_when_it_is_ready(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    server = start(
        tmp_path / "c",
        [*python(COMPILE.replace("sys.argv[1:]", "sys.argv[1:-1]") + SERVE), "a", ready],
        *GUARD,
        "--ready",
        ready,
        stdin=subprocess.PIPE,
    )
    with Cache.open(tmp_path / "c", strict=True) as cache:
        eventually(lambda: bool(list(cache.entries("folder/1"))), "the folder is kept")
    assert toy(tmp_path / "c", "a")[0] == ["hit a code of a"]
    server.kill()
    server.communicate()


def test_a_server_is_captured_on_a_signal_that_it_does_not_see(tmp_path: Path) -> None:
    code = COMPILE + "\nsys.stdout.flush(); sys.stdin.readline()"
    server = start(
        tmp_path / "c", [*python(code), "a"], *GUARD, "--keep-on", "USR2", stdin=subprocess.PIPE
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "miss a\n"
    server.send_signal(signal.SIGUSR2)  # its default would end the program
    with Cache.open(tmp_path / "c", strict=True) as cache:
        eventually(lambda: bool(list(cache.entries("folder/1"))), "the folder is kept")
    server.communicate("\n", timeout=60)
    assert server.returncode == 0


def test_a_program_that_asks_is_captured_before_it_goes_on(tmp_path: Path) -> None:
    code = (
        COMPILE
        + """
import trivet
print(trivet.checkpoint(), flush=True)
sys.stdin.readline()
"""
    )
    server = start(tmp_path / "c", [*python(code), "a"], *GUARD, stdin=subprocess.PIPE)
    assert server.stdout is not None
    assert [server.stdout.readline() for _ in range(2)] == ["miss a\n", "True\n"]
    assert toy(tmp_path / "c", "a")[0] == ["hit a code of a"]
    server.kill()
    server.communicate()


def test_asking_where_nobody_guards_is_nothing() -> None:
    code = "import sys, trivet; print(trivet.checkpoint(), 'lmdb' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_a_folder_with_which_programs_die_is_set_aside(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    dies = [*python(COMPILE + "\nsys.stdout.flush(); os.abort()"), "a"]
    said = [run(tmp_path / "c", dies, *GUARD) for _ in range(3)]
    assert [each.stdout.split()[0] for each in said] == ["hit", "hit", "miss"]
    assert {each.returncode for each in said} == {-signal.SIGABRT}
    (report,) = (tmp_path / "c" / "quarantine").rglob("*.json")
    assert "ended badly" in report.read_text()


def test_what_a_crashed_program_compiled_is_not_kept(tmp_path: Path) -> None:
    run(tmp_path / "c", [*python(COMPILE + "\nos.abort()"), "a"], *GUARD)
    assert toy(tmp_path / "c", "a")[0] == ["miss a"]


@pytest.mark.needs("root")
def test_a_cache_folder_that_cannot_be_used_does_not_stop_the_program(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir(mode=0o777)
    (tmp_path / "c").chmod(0o777)  # which is refused
    said, _ = toy(tmp_path / "c", "a")
    assert said == ["miss a"]


def test_the_effect_as_json(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    _, told = toy(tmp_path / "c", "a", options=(*GUARD, "--json"))
    effects = {each["framework"]: each for each in json.loads(told.splitlines()[-1])["effects"]}
    effect = effects["TOY_CACHE"]  # beside those of frameworks that are installed
    assert (effect["restored"], effect["files"]) == ("hit", 1)


def test_quiet_says_nothing(tmp_path: Path) -> None:
    assert toy(tmp_path / "c", "a", options=(*GUARD, "--quiet"))[1] == ""


def test_private_folders_are_gone_afterwards(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    toy(tmp_path / "c", "a")
    assert not [each for each in (tmp_path / "c" / "staging").rglob("*") if each.is_file()]


def test_a_file_that_was_there_before_says_nothing_of_readiness(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    (tmp_path / "ready").touch()
    dies = [*python(COMPILE + "\nsys.stdout.flush(); os.abort()"), "a"]
    options = (*GUARD, "--ready", tmp_path / "ready")
    said = [run(tmp_path / "c", dies, *options).stdout.split()[0] for _ in range(3)]
    assert said == ["hit", "hit", "miss"]


def test_an_input_is_followed_by_links(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "k" / "sub").symlink_to(tmp_path / "shared")
    (tmp_path / "shared" / "round").symlink_to(tmp_path / "k")
    options = ("--folder", "TOY_CACHE", "--input", tmp_path / "k")
    said = []
    for text in ("one", "one", "two"):
        (tmp_path / "shared" / "f").write_text(text)
        said += toy(tmp_path / "c", "a", options=options)[0]
    assert said == ["miss a", "hit a code of a", "miss a"]


def test_what_was_made_while_an_input_changed_is_not_kept(tmp_path: Path) -> None:
    source = tmp_path / "kernel"
    source.write_text("one")
    options = ("--folder", "TOY_CACHE", "--input", source)
    change = f"\nPath({str(source)!r}).write_text('two')"
    done = run(tmp_path / "c", [*python(COMPILE + change), "a"], *options)
    assert "an input changed while the program ran" in done.stderr
    source.write_text("one")
    assert toy(tmp_path / "c", "a", options=options)[0] == ["miss a"]


@pytest.mark.timeout(60)
def test_a_pipe_is_no_input(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    options = ("--folder", "TOY_CACHE", "--input", tmp_path / "pipe")
    done = run(tmp_path / "c", ["echo", "ran"], *options)
    assert done.stdout == "ran\n"
    assert "is not a regular file" in done.stderr


def test_what_was_made_with_a_library_that_is_gone_is_not_kept(tmp_path: Path) -> None:
    library = tmp_path / "operators.so"
    said = []
    for _ in range(2):
        shutil.copyfile(LIBRARIES["blake3"], library)
        code = f"{LOADS}\nos.remove({str(library)!r})"
        said.append(run(tmp_path / "c", [*python(code), library, "a"], *GUARD))
    assert [each.stdout.split()[0] for each in said] == ["miss", "miss"]
    assert "is gone" in said[0].stderr


def test_a_program_that_removes_its_own_directory_ends_as_it_would(tmp_path: Path) -> None:
    library = tmp_path / "operators.so"
    shutil.copyfile(LIBRARIES["blake3"], library)
    (tmp_path / "here").mkdir()
    process = start(
        tmp_path / "c",
        [*python(LOADS + "\nos.rmdir(os.getcwd()); sys.exit(3)"), library, "a"],
        *GUARD,
        cwd=tmp_path / "here",
    )
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (3, False)


@pytest.mark.timeout(90)
def test_nobody_waits_for_a_folder_that_a_ready_server_does_not_use(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    options = ("--folder", "TOY_CACHE", "--folder", "UNUSED", "--salt", "x=1")
    server = start(
        tmp_path / "c",
        [*python(COMPILE.replace("sys.argv[1:]", "sys.argv[1:-1]") + SERVE), "a", ready],
        *options,
        "--ready",
        ready,
        stdin=subprocess.PIPE,
    )
    with Cache.open(tmp_path / "c", strict=True) as cache:
        eventually(lambda: bool(list(cache.entries("folder/1"))), "the folder is kept")
    assert toy(tmp_path / "c", "a", options=options)[0] == ["hit a code of a"]
    server.kill()
    server.communicate()


def test_a_long_path_of_temporary_files_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("l" * 120)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    assert [toy(tmp_path / "c", "a")[0] for _ in range(2)] == [["miss a"], ["hit a code of a"]]
