"""Processes that wait for one another are told from those that don't."""

from __future__ import annotations

import pytest

from trivet.plans.folders.jobs import is_one_of_several

SEVERAL = [
    {"RANK": "0", "WORLD_SIZE": "8"},
    {"SLURM_PROCID": "3", "SLURM_NTASKS": "4"},
    {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
    {"PMI_RANK": "1", "PMI_SIZE": "2"},
    {"LWS_WORKER_INDEX": "0", "LWS_GROUP_SIZE": "2"},
    {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "a,b"},
    {"NODE_RANK": "1", "PET_NNODES": "2"},
    {"JOB_COMPLETION_INDEX": "0"},
]
ALONE = [
    {},
    {"RANK": "0", "WORLD_SIZE": "1"},
    {"WORLD_SIZE": "8"},
    {"RANK": "0"},
    {"SLURM_NTASKS": "4"},  # in an allocation, and not in a step
    {"RANK": "zero", "WORLD_SIZE": "many"},
    {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"},
    {"PET_NNODES": "1"},
]
LAUNCHERS = {
    "torchrun --nnodes 2 train.py": True,
    "torchrun --nnodes=2 train.py": True,
    "torchrun --nnodes=1:4 train.py": True,
    "accelerate launch --num_machines 2 train.py": True,
    "vllm serve m --nnodes 2 --node-rank 1": True,
    "torchrun --nnodes 1 --nproc-per-node 8 train.py": False,
    "torchrun --nproc-per-node 8 train.py": False,
    "python train.py --nnodes": False,
}


@pytest.mark.parametrize("environment", SEVERAL)
def test_one_of_several(environment: dict[str, str]) -> None:
    assert is_one_of_several(environment, ())


@pytest.mark.parametrize("environment", ALONE)
def test_one_alone(environment: dict[str, str]) -> None:
    assert not is_one_of_several(environment, ())


@pytest.mark.parametrize("command", LAUNCHERS)
def test_a_launcher_on_several_hosts(command: str) -> None:
    words = tuple(each.encode() for each in command.split())
    assert is_one_of_several({}, words) is LAUNCHERS[command]
