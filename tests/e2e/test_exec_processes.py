"""``trivet exec`` with processes that are not what the command says, or end without a word."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from tests.support.engine import eventually
from tests.support.toys import COMPILE, GUARD, LIBRARIES, python, run, start, toy

LOADS = "import ctypes, sys; ctypes.CDLL(sys.argv.pop(1))" + COMPILE


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "operators.so"
    shutil.copyfile(LIBRARIES["blake3"], path)
    return path


def replace(library: Path) -> None:
    library.unlink()
    shutil.copyfile(LIBRARIES["lmdb"], library)


# -- processes that end without a word -------------------------------------------------------------

ENDS = {
    "exits": "\nsys.stdout.flush(); os._exit(0)",
    "is killed": "\nsys.stdout.flush(); os.kill(os.getpid(), 9)",
    "becomes another": "\nsys.stdout.flush(); os.execv('/bin/true', ['true'])",
}


@pytest.mark.parametrize("end", ENDS)
def test_what_a_program_loaded_is_known_however_it_ends(
    end: str, library: Path, tmp_path: Path
) -> None:
    said = []
    for _ in range(2):
        said.append(run(tmp_path / "c", [*python(LOADS + ENDS[end]), library, "a"], *GUARD))
        said.append(run(tmp_path / "c", [*python(LOADS + ENDS[end]), library, "a"], *GUARD))
        replace(library)
    assert [each.stdout.split()[0] for each in said] == ["miss", "hit", "miss", "hit"]


def test_what_a_forked_worker_loaded_is_known(library: Path, tmp_path: Path) -> None:
    worker = "import os\nif os.fork():\n    os.wait(); os._exit(0)\n" + LOADS + ENDS["exits"]
    said = []
    for _ in range(2):
        said.append(run(tmp_path / "c", [*python(worker), library, "a"], *GUARD).stdout.split()[0])
        replace(library)
    assert said == ["miss", "miss"]


def test_what_a_process_could_not_write_down_is_not_kept(tmp_path: Path) -> None:
    """As on a full disk."""
    spoil = "import os; os.rename(os.environ['TRIVET_EXEC_RUN'] + '/reports', "
    spoil += "os.environ['TRIVET_EXEC_RUN'] + '/gone'); import sys, ctypes; ctypes.CDLL(None)\n"
    done = run(tmp_path / "c", [*python(spoil + COMPILE), "a"], *GUARD)
    assert done.stdout == "miss a\n"
    assert "did not write down what it loaded" in done.stderr
    assert toy(tmp_path / "c", "a")[0] == ["miss a"]


SILENT = {
    "a switch": "subprocess.run([sys.executable, '-W', 'ignore', '-I', '-c', CODE, 'a'])",
    "a shell": "subprocess.run(sys.executable + ' -I -c \"$CODE\" a', shell=True)",
    "system": "os.system(sys.executable + ' -u -I -c \"$CODE\" a')",
    "no search path": "os.environ.pop('PYTHONPATH')\n"
    "subprocess.run([sys.executable, '-c', CODE, 'a'])",
    "another environment": "subprocess.run(['sh', '-c', 'exec \"$@\"', '', sys.executable, '-c', "
    "CODE, 'a'], env={'TOY_CACHE': os.environ['TOY_CACHE'], 'PATH': os.environ['PATH']})",
    "a script": "script = os.environ['TOY_CACHE'] + '/../script'\n"
    "open(script, 'w').write(f'#!/bin/sh\\nexec {sys.executable} -I -c \"$CODE\" a\\n')\n"
    "os.chmod(script, 0o700)\nsubprocess.run([script])",
    "in the place of a process": "os.execv(sys.executable, "
    "[sys.executable, '-I', '-c', CODE, 'a'])",
    "in the place of a child": "if os.fork() == 0:\n"
    "    os.execv(sys.executable, [sys.executable, '-I', '-c', CODE, 'a'])\nos.wait()",
    "and nothing comes after": "subprocess.run([sys.executable, '-I', '-c', CODE, 'a'])\n"
    "os._exit(0)",
    "a worker without our search path": "import multiprocessing\n"
    "os.environ['PYTHONPATH'], sys.argv = '', ['', 'a']\n"
    "context = multiprocessing.get_context('spawn')\n"
    "worker = context.Process(target=exec, args=(CODE, {}))\nworker.start(); worker.join()",
}


@pytest.mark.parametrize("how", SILENT)
def test_what_a_python_that_reports_nothing_may_have_made_is_not_kept(
    how: str, tmp_path: Path
) -> None:
    code = f"import os, subprocess, sys\nCODE = os.environ['CODE'] = {COMPILE!r}\n"
    done = run(tmp_path / "c", python(code + SILENT[how]), *GUARD)
    assert done.stdout == "miss a\n"
    assert "a Python that reports nothing was started" in done.stderr
    assert toy(tmp_path / "c", "a")[0] == ["miss a"]


def test_a_compiler_that_is_started_without_our_search_path_is_no_python(tmp_path: Path) -> None:
    code = "import os, subprocess\nos.environ.pop('PYTHONPATH')\nsubprocess.run(['true'])\n"
    run(tmp_path / "c", [*python(code + COMPILE), "a"], *GUARD)
    assert toy(tmp_path / "c", "a")[0] == ["hit a code of a"]


# -- processes that are not what the command says --------------------------------------------------

TUNES = "LD_LIBRARY_PATH=/nowhere"


def test_a_variable_that_a_script_sets_makes_another_folder(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    script = f"{TUNES} exec {sys.executable} -c '{COMPILE}' a"
    said = [run(tmp_path / "c", ["sh", "-c", script], *GUARD).stdout.split()[0] for _ in range(2)]
    assert said == ["miss", "hit"]
    assert toy(tmp_path / "c", "a")[0] == ["hit a code of a"]


def test_a_variable_that_the_program_sets_makes_another_folder(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    code = "import os; os.environ['GLIBC_TUNABLES'] = 'glibc.malloc.check=0'\n" + COMPILE
    said = [run(tmp_path / "c", [*python(code), "a"], *GUARD).stdout.split()[0] for _ in range(2)]
    assert said == ["miss", "hit"]
    assert toy(tmp_path / "c", "a")[0] == ["hit a code of a"]


CANNOT_ASK = {
    "a search path of other things": "import pathlib, sys; sys.path.append(pathlib.Path('/x'))\n",
    "nobody answers": "import os; os.unlink(os.environ['TRIVET_EXEC_RUN'] + '/socket')\n",
}


@pytest.mark.parametrize("trouble", CANNOT_ASK)
def test_a_folder_that_does_not_fit_any_more_is_left_also_without_an_answer(
    trouble: str, tmp_path: Path
) -> None:
    toy(tmp_path / "c", "a")
    code = CANNOT_ASK[trouble] + "import os; os.environ['GLIBC_TUNABLES'] = 'glibc.malloc.check=0'"
    done = run(tmp_path / "c", [*python(code + COMPILE), "a", "b"], *GUARD)
    assert done.stdout == "miss a\nmiss b\n", done.stderr
    assert toy(tmp_path / "c", "a", "b")[0] == ["hit a code of a", "miss b"]


def test_a_library_nobody_knew_of_makes_another_folder(library: Path, tmp_path: Path) -> None:
    """The folder was filled by programs without it, and may hold operators of its names."""
    toy(tmp_path / "c", "a")
    said = []
    for _ in range(2):
        said.append(run(tmp_path / "c", [*python(LOADS), library, "a"], *GUARD).stdout.split()[0])
    replace(library)
    said.append(run(tmp_path / "c", [*python(LOADS), library, "a"], *GUARD).stdout.split()[0])
    assert said == ["miss", "hit", "miss"]
    assert toy(tmp_path / "c", "a")[0] == ["hit a code of a"]


def choosing(cache: Path, which: Path, library: Path) -> str:
    """What a command says that never changes, and finds in a file which library it is to load."""
    which.write_text(str(library))
    code = f"import ctypes; ctypes.CDLL(open({str(which)!r}).read())" + COMPILE
    return str(run(cache, [*python(code), "a"], *GUARD).stdout.split()[0])


def test_a_library_is_not_taken_for_another_that_the_same_command_loaded(tmp_path: Path) -> None:
    """A folder that depends on either would have the operators of one under those of the other."""
    for name, path in LIBRARIES.items():
        shutil.copyfile(path, tmp_path / name)
    said = [
        choosing(tmp_path / "c", tmp_path / "which", tmp_path / name) for name in [*LIBRARIES] * 2
    ]
    assert said == ["miss", "miss", "hit", "hit"]


TWO = """
import os, subprocess, sys
for library in sys.argv[1:]:
    subprocess.run([sys.executable, "-c", os.environ["CODE"], library, "a"])
"""


def test_two_processes_of_one_run_that_load_different_libraries_share_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though their folders begin empty, and what they compile has the same name."""
    monkeypatch.setenv("CODE", LOADS)
    libraries = [tmp_path / name for name in LIBRARIES]
    for each in libraries:
        shutil.copyfile(LIBRARIES[each.name], each)
    said = [run(tmp_path / "c", [*python(TWO), *libraries], *GUARD).stdout for _ in range(2)]
    assert said == ["miss a\nmiss a\n", "hit a code of a\nhit a code of a\n"]


MEET = """
for library in $LIBRARIES; do
    "$PYTHON" -c "$CODE" $library a; touch $ME; until test -e $OTHER; do sleep 0.05; done
done
"""


@pytest.mark.timeout(60)
def test_runs_that_fill_what_the_other_needs_next_do_not_wait_for_each_other(
    tmp_path: Path,
) -> None:
    one, two = (shutil.copyfile(path, tmp_path / name) for name, path in LIBRARIES.items())
    runs = []
    for me, other, libraries in ("1", "2", (one, two)), ("2", "1", (two, one)):
        variables = {
            "ME": str(tmp_path / me), "OTHER": str(tmp_path / other), "CODE": LOADS,
            "PYTHON": sys.executable, "LIBRARIES": " ".join(map(str, libraries)),
        }  # fmt: skip
        command = ["sh", "-c", MEET]
        runs.append(start(tmp_path / "c", command, *GUARD, "--wait", "3600", more=variables))
    for each in runs:
        out, err = each.communicate(timeout=50)
        assert (each.returncode, out) == (0, "miss a\nmiss a\n"), err


def test_a_library_that_is_made_anew_after_a_folder_was_given_makes_another(
    library: Path, tmp_path: Path
) -> None:
    """As by a program that builds its operators before it loads them."""
    build = tmp_path / "build.so"
    code = f"import os; os.path.exists({str(build)!r}) and os.replace({str(build)!r}, "
    code += f"{str(library)!r})\n{LOADS}"
    said = []
    for built in (None, None, "lmdb"):
        if built is not None:
            shutil.copyfile(LIBRARIES[built], build)
        said.append(run(tmp_path / "c", [*python(code), library, "a"], *GUARD).stdout.split()[0])
    assert said == ["miss", "hit", "miss"]


def test_a_library_that_comes_to_stand_before_another_makes_another_folder(tmp_path: Path) -> None:
    """Nothing that the folder is known to depend on has changed: a file was added."""
    code = "import ctypes, sys; ctypes.CDLL('operators.so')" + COMPILE
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    shutil.copyfile(LIBRARIES["blake3"], second / "operators.so")
    search = {"LD_LIBRARY_PATH": f"{first}:{second}"}
    said = []
    for number in range(4):
        if number == 2:
            shutil.copyfile(LIBRARIES["lmdb"], first / "operators.so")
        process = start(tmp_path / "c", [*python(code), "a"], *GUARD, more=search)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        said.append(out.split()[0])
    assert said == ["miss", "hit", "miss", "hit"]


BUILDS = """
import os, shutil, sys
if "BUILD" in os.environ:
    os.unlink(sys.argv[1])
    shutil.copyfile(os.environ["BUILD"], sys.argv[1])
"""


def test_a_library_that_is_built_anew_before_it_is_loaded_makes_another_folder(
    library: Path, tmp_path: Path
) -> None:
    """As PyTorch builds an extension whose source was edited, after the folder was given."""
    said = []
    for build in ({}, {}, {"BUILD": LIBRARIES["lmdb"]}, {}, {}):
        command = [*python(BUILDS + LOADS), library, "a"]
        out, err = start(tmp_path / "c", command, *GUARD, more=build).communicate(timeout=60)
        assert out, err
        said.append(out.split()[0])
    assert said == ["miss", "hit", "miss", "miss", "hit"]


# -- libraries that packages brought ---------------------------------------------------------------


def test_an_installed_extension_is_known_by_content(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    module = packages / "cpython.so"
    shutil.copyfile(LIBRARIES["lmdb"], module)
    command = [tmp_path / "venv" / "bin" / "python", "-c", "import cpython\n" + COMPILE, "a"]
    said = []
    for change in (b"", b"", b"patched"):
        content = module.read_bytes() + change
        module.unlink()
        module.write_bytes(content)
        done = run(tmp_path / "c", command, *GUARD)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split()[0])
    assert said == ["miss", "hit", "miss"]


# -- what a folder is made of ----------------------------------------------------------------------


def shell(cache: Path, script: str) -> subprocess.CompletedProcess[str]:
    return run(cache, ["sh", "-c", script], *GUARD)


def test_links_and_the_right_to_run_are_kept(tmp_path: Path) -> None:
    made = "cd $TOY_CACHE; mkdir d; printf '#!/bin/sh\\necho ran' > d/tool; chmod +x d/tool; "
    made += "echo 1 > plain; ln -s d/tool now; ln -s $TOY_CACHE/d folder"
    assert shell(tmp_path / "c", made).returncode == 0
    done = shell(tmp_path / "c", "cd $TOY_CACHE; ./now; folder/tool; test ! -x plain && ls")
    assert done.stdout.split() == ["ran", "ran", "d", "folder", "now", "plain"]
    # Also when something is added to it.
    shell(tmp_path / "c", "echo more > $TOY_CACHE/more")
    assert shell(tmp_path / "c", "cd $TOY_CACHE; ./now; ls").stdout.split() == [
        "ran", "d", "folder", "more", "now", "plain",
    ]  # fmt: skip


def test_a_folder_with_a_link_that_leads_out_is_not_kept(tmp_path: Path) -> None:
    done = shell(tmp_path / "c", "echo 1 > $TOY_CACHE/a; ln -s /etc/passwd $TOY_CACHE/b")
    assert "leads out of the folder" in done.stderr
    assert shell(tmp_path / "c", "ls $TOY_CACHE").stdout == ""


# -- what stays ------------------------------------------------------------------------------------


def runs(cache: Path) -> list[Path]:
    return list((cache / "runs").glob("run-*"))


def test_what_runs_in_the_background_keeps_its_folder_until_it_ends(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    script = "sleep 600 >/dev/null 2>&1 & echo $! >&2; exit 5"
    started = start(tmp_path / "c", ["sh", "-c", script], *GUARD)
    assert started.stderr is not None
    pid = int(started.stderr.readline())
    try:
        assert started.wait(60) == 5
        assert "in the background" in started.stderr.read()
        environ = Path(f"/proc/{pid}/environ").read_text().split("\0")
        (folder,) = (Path(each[10:]) for each in environ if each.startswith("TOY_CACHE="))
        assert (folder / "compiled" / "a").exists()
        toy(tmp_path / "c", "a")
        assert (folder / "compiled" / "a").exists()
    finally:
        os.kill(pid, signal.SIGKILL)
        started.communicate()
    eventually(lambda: not Path(f"/proc/{pid}/environ").exists(), "it is gone")
    toy(tmp_path / "c", "a")
    assert runs(tmp_path / "c") == []


def test_what_a_killed_first_command_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no cache folder yet, so its own lies elsewhere."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    killed = start(tmp_path / "c", ["cat"], stdin=subprocess.PIPE)
    eventually(lambda: len(list(tmp_path.glob("trivet-*/run-*/lock"))) == 1, "the run has begun")
    killed.kill()
    killed.communicate()
    toy(tmp_path / "c", "a")
    toy(tmp_path / "c", "a")
    assert [*tmp_path.glob("trivet-*/run-*"), *runs(tmp_path / "c")] == []


def test_what_a_killed_command_left_is_removed_by_the_next(tmp_path: Path) -> None:
    toy(tmp_path / "c", "a")
    killed = start(tmp_path / "c", ["cat"], *GUARD, stdin=subprocess.PIPE)
    eventually(lambda: len(runs(tmp_path / "c")) == 1, "the run has begun")
    beside = start(tmp_path / "c", ["cat"], *GUARD, stdin=subprocess.PIPE)
    eventually(lambda: len(runs(tmp_path / "c")) == 2, "so has another")
    killed.kill()
    killed.communicate()
    assert toy(tmp_path / "c", "a")[0] == ["hit a code of a"]
    assert len(runs(tmp_path / "c")) == 1  # of the one that lives
    beside.communicate(timeout=60)
    assert runs(tmp_path / "c") == []


# -- names that are no text ------------------------------------------------------------------------


def test_a_search_path_that_is_no_unicode_is_passed_on_and_guarded(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/m\xf6dules"
    os.mkdir(folder)
    Path(os.fsdecode(folder), "mine.py").write_text("name = 'mine'")
    environment = {"PYTHONPATH": os.fsdecode(folder)}
    said = []
    for _ in range(2):
        process = start(
            tmp_path / "c", [*python("import mine" + COMPILE), "a"], *GUARD, more=environment
        )
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        said.append(out.split()[0])
    assert said == ["miss", "hit"]


def test_nothing_is_opened_for_a_program_that_compiles_nothing(tmp_path: Path) -> None:
    done = run(tmp_path / "c", python("print('ran')"), "--json")
    assert done.stdout == "ran\n"
    assert json.loads(done.stderr) == {"effects": [], "not_guarded": "", "left": ""}
    assert not (tmp_path / "c" / "index").exists()


def test_a_shared_tier_that_cannot_be_meant_is_said_and_stops_nothing(tmp_path: Path) -> None:
    done = run(tmp_path / "c", ["echo", "ran"], *GUARD, "--shared", "gopher://x")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "not guarded" in done.stderr
    assert "gopher" in done.stderr
