"""Whether a process is one of several of one job, which wait for one another by themselves.

One that waited for what another compiles would be waited for by that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# By who starts them: what says which it is, and what says how many there are.
_NUMBERED = (
    ("RANK", "WORLD_SIZE"),  # torchrun, Kubeflow
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("LWS_WORKER_INDEX", "LWS_GROUP_SIZE"),  # Kubernetes' LeaderWorkerSet
)
_HOSTS = ("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_ADDRESSES")  # of all processes, with commas
_NODES = "PET_NNODES"  # torchrun's own option
_INDEXED = "JOB_COMPLETION_INDEX"  # of a job of Kubernetes, which does not say how many there are
_OPTIONS = ("--nnodes", "--num_machines", "--num-machines", "--num_nodes", "--num-nodes")


def is_one_of_several(environment: Mapping[str, str], command: Sequence[bytes]) -> bool:
    """By the variables of launchers, and by options that ``command`` gives to one.

    A launcher on each of several hosts has no variables yet.
    """
    if any(rank in environment and _many(environment.get(size)) for rank, size in _NUMBERED):
        return True
    if _many(environment.get(_NODES)) or _INDEXED in environment:
        return True
    return any("," in environment.get(each, "") for each in _HOSTS) or _on_hosts(command)


def _on_hosts(command: Sequence[bytes]) -> bool:
    words = [each.decode(errors="replace") for each in command]
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if name in _OPTIONS and _many(value if equals else following):
            return True
    return False


def _many(number: str | None) -> bool:
    """Whether it is a number above 1, or a range up to one, as torchrun takes it."""
    last = (number or "").rpartition(":")[2]
    return last.isdigit() and int(last) > 1
