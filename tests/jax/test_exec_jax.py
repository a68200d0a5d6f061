"""JAX's persistent cache under ``trivet exec``, by JAX's own counters."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.guarded import Guarded, run, start, start_command

PROGRAM = """
import jax, jax.numpy as jnp
print(float(jax.jit(lambda x: jnp.tanh(x @ x.T).sum())(jnp.ones((8, 4)))))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def counters(guarded: Guarded) -> tuple[int, int]:
    counted = guarded.effects["jax"]["counters"]
    return counted["hits"], counted["misses"]


def test_the_second_start_compiles_nothing(program: Path, tmp_path: Path) -> None:
    first, second = (run(tmp_path / "c", program) for _ in range(2))
    hits, misses = counters(first)
    assert hits == 0
    assert misses > 0
    assert counters(second) == (misses, 0)
    assert first.out == second.out


def test_a_cache_that_was_moved_is_still_hit(program: Path, tmp_path: Path) -> None:
    """JAX's own key depends on the path of its folder."""
    _, misses = counters(run(tmp_path / "c", program))
    shutil.copytree(tmp_path / "c", tmp_path / "moved")
    shutil.rmtree(tmp_path / "c")
    assert counters(run(tmp_path / "moved", program)) == (misses, 0)


def test_a_truncated_entry_is_made_again_and_stays_whole(program: Path, tmp_path: Path) -> None:
    """JAX finds it damaged at every start, and never replaces it."""
    _, misses = counters(run(tmp_path / "c", program))
    kept = max(
        (tmp_path / "c" / "artifacts").rglob("*-cache"), key=lambda each: each.stat().st_size
    )
    kept.chmod(0o600)
    kept.write_bytes(kept.read_bytes()[:-20])
    damaged = run(tmp_path / "c", program)
    assert "damaged" in damaged.effects["jax"]["reason"]
    assert counters(damaged) == (0, misses)
    assert counters(run(tmp_path / "c", program)) == (misses, 0)


KILLED = """
import os, pathlib

def write_bytes(path, data, whole=pathlib.Path.write_bytes, seen=[]):
    seen.append(path)
    if len(seen) < 2:
        return whole(path, data)
    with path.open("wb") as file:
        file.write(data[: int(len(data) * PART)])
        file.flush()
        os.kill(os.getpid(), 9)

if "PART_OF_THE_SECOND" in os.environ:
    PART = float(os.environ["PART_OF_THE_SECOND"])
    pathlib.Path.write_bytes = write_bytes
"""


@pytest.mark.parametrize("part", [0.0, 0.5])
def test_what_a_killed_program_wrote_half_is_compiled_again_and_then_whole(
    part: float, program: Path, tmp_path: Path
) -> None:
    """JAX writes to the final name, and never replaces what is there."""
    program.write_text(KILLED + PROGRAM)
    killed = start(tmp_path / "c", program, PART_OF_THE_SECOND=str(part))
    _, err = killed.communicate(timeout=280)
    assert killed.returncode == -signal.SIGKILL, err
    assert (effect(err)["added"], effect(err)["left_out"]) == (1, 1)
    healed = run(tmp_path / "c", program)
    hits, misses = counters(healed)
    assert hits == 1
    assert misses > 0
    again = run(tmp_path / "c", program)
    assert counters(again) == (1 + misses, 0)
    assert again.out == healed.out


def effect(err: str) -> dict[str, Any]:
    (told,) = json.loads(err.splitlines()[-1])["effects"]
    return dict(told)


def test_six_workers_on_an_empty_cache_compile_once(program: Path, tmp_path: Path) -> None:
    workers = [start(tmp_path / "c", program) for _ in range(6)]
    counted = [counters(Guarded(each, 280)) for each in workers]
    (compiled,) = {misses for _, misses in counted if misses}
    assert sorted(counted) == [(0, compiled), *[(compiled, 0)] * 5]


def test_a_flag_of_the_compiler_makes_another_folder(program: Path, tmp_path: Path) -> None:
    _, misses = counters(run(tmp_path / "c", program))
    other = run(tmp_path / "c", program, XLA_FLAGS="--xla_cpu_enable_fast_math=true")
    assert other.effects["jax"]["restored"] == "empty"
    assert counters(other) == (0, misses)


def test_a_script_that_leads_to_another_python_is_guarded_by_that(
    program: Path, tmp_path: Path
) -> None:
    """The first Python on the search path has no JAX."""
    script = tmp_path / "serve.sh"
    script.write_text(f'exec {sys.executable} "$1"\n')
    command = ["sh", script, program]
    _, misses = counters(Guarded(start_command(tmp_path / "c", command), 280))
    assert misses > 0
    assert counters(Guarded(start_command(tmp_path / "c", command), 280)) == (misses, 0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_flag_that_the_program_sets_itself_makes_another_folder(
    when: str, program: Path, tmp_path: Path
) -> None:
    """Before JAX is imported, or after: it looks when it compiles first."""
    run(tmp_path / "c", program)
    sets = "import os; os.environ['XLA_FLAGS'] = '--xla_cpu_enable_fast_math=true'\n"
    first = "" if when == "before" else "import jax\n"
    program.write_text(first + sets + PROGRAM)
    said = [counters(run(tmp_path / "c", program)) for _ in range(2)]
    assert said[0][0] == 0
    assert said[0][1] > 0
    assert said[1] == (said[0][1], 0)
