"""A program's arguments, where the framework's own key leaves out what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.cli import trivet
from tests.support.installed import that_does
from tests.support.toys import COMPILE, start

SERVE = COMPILE.replace("TOY_CACHE", "VLLM_CACHE_ROOT").replace("sys.argv[1:]", '["graph"]')
PROGRAMS = {
    "itself": "import vllm" + SERVE,
    "a helper without arguments": f"""
import subprocess, sys, vllm
code = {"import vllm" + SERVE!r}
sys.exit(subprocess.run([sys.executable, "-c", code]).returncode)
""",
    "a worker": f"""
import multiprocessing, sys, vllm
code = {"import vllm" + SERVE!r}
if __name__ == "__main__":
    del sys.argv[1:]
    worker = multiprocessing.get_context("spawn").Process(target=exec, args=(code, {{}}))
    worker.start()
    worker.join()
    sys.exit(worker.exitcode)
""",
    "a server that it starts": f"""
import subprocess, sys, vllm
code = {"import vllm" + SERVE!r}
sys.exit(subprocess.run([sys.executable, "-c", code, *sys.argv[1:]]).returncode)
""",
    "after a script": "import vllm" + SERVE,
}


@pytest.fixture
def search(tmp_path: Path) -> dict[str, str]:
    """A search path with a stand-in for vLLM, and for PyTorch, whose libraries are large."""
    site = tmp_path / "site"
    that_does(site, "vllm", "")
    that_does(site, "torch", "")
    return {"PYTHONPATH": str(site), "NUMBER": "7"}


@pytest.mark.parametrize("who", PROGRAMS)
def test_vllms_folder_is_told_by_the_arguments_of_the_program(
    who: str, tmp_path: Path, search: dict[str, str]
) -> None:
    program = tmp_path / "serve.py"
    program.write_text(PROGRAMS[who])
    command: list[object] = [sys.executable, program]
    said = []
    for number, port in (("7", "1"), ("7", "1"), ("9", "1"), ("7", "2")):
        words = ["--spec-tokens", number, "--port", port]
        if who == "after a script":  # which takes them from elsewhere
            words = ["-c", f"exec {sys.executable} {program} --spec-tokens $NUMBER --port {port}"]
            command = ["sh"]
        process = start(tmp_path / "c", [*command, *words], more={**search, "NUMBER": number})
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        said.append(out.split()[0])
    assert said == ["miss", "hit", "miss", "hit"]


def test_the_argument_that_differs_is_named(tmp_path: Path, search: dict[str, str]) -> None:
    program = tmp_path / "serve.py"
    program.write_text(PROGRAMS["itself"])
    command = [sys.executable, str(program)]
    start(tmp_path / "c", [*command, "--spec-tokens", "7"], more=search).communicate(timeout=60)
    line = ["exec", "--explain", "--json", "--", *command, "--spec-tokens"]
    assert [
        each["hit"]
        for each in trivet(tmp_path / "c", *line, "7", "--port", "1", **search).json()["folders"]
        if each["framework"] == "vllm"
    ] == [True]
    told = trivet(tmp_path / "c", *line, "9", **search).json()["folders"]
    (near,) = [each["nearest"] for each in told if each["framework"] == "vllm"]
    assert near["differences"] == [
        {
            "field": "arguments.--spec-tokens",
            "mine": "9",
            "theirs": "7",
            "means": "an argument of the program",
        }
    ]
