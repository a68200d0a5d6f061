"""``trivet exec`` around each process of one job: they wait for one another by themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.toys import COMPILE, GUARD, MEETS, python, start, toy

JOBS = {
    "torchrun": {"RANK": "{}", "WORLD_SIZE": "2"},
    "srun": {"SLURM_PROCID": "{}", "SLURM_NTASKS": "2"},
    "mpirun": {"OMPI_COMM_WORLD_RANK": "{}", "OMPI_COMM_WORLD_SIZE": "2"},
    "a launcher on each host": {},
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("job", JOBS)
def test_processes_of_one_job_do_not_wait_and_what_each_compiled_is_kept(
    job: str, tmp_path: Path
) -> None:
    """The first would keep the others from getting to where it waits for them."""
    os.mkfifo(tmp_path / "meet")
    command = [*python(MEETS), *([] if JOBS[job] else ["--nnodes=2"])]
    processes = [
        start(
            tmp_path / "c",
            command,
            *GUARD,
            more={
                "PART": str(number),
                "MEET": str(tmp_path / "meet"),
                **{name: value.format(number) for name, value in JOBS[job].items()},
            },
        )
        for number in range(2)
    ]
    ended = [each.communicate(timeout=50) for each in processes]
    assert [each.returncode for each in processes] == [0, 0], ended
    said, _ = toy(tmp_path / "c", "part0", "part1")
    assert said == ["hit part0 code of part0", "hit part1 code of part1"]


def test_a_job_of_one_process_compiles_once(tmp_path: Path) -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "1"}
    runs = [start(tmp_path / "c", [*python(COMPILE), "a"], *GUARD, more=alone) for _ in range(3)]
    said = [each.communicate(timeout=120)[0] for each in runs]
    assert sorted(said) == ["hit a code of a\n"] * 2 + ["miss a\n"]
