"""Locks, and what is being written, are left out of what is kept: as each framework names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trivet.plans.folders import KNOWN, declared
from trivet.plans.folders.snapshot import files_of

FRAMEWORKS = {each.name: each for each in KNOWN} | {"TOY": declared("TOY")}
TORCH = [
    "inductor/locks/cab.lock",  # torch.utils._filelock
    "inductor/cb/.1234.139872.tmp",  # torch._inductor.codecache.write_atomic
    "inductor/triton/0/tmp.6f1c6f9e/add.cubin",  # torch._inductor.triton_bundler
    "inductor/triton/0/KEY/tmp.pid_12_6f1c/add.ptx",  # triton.runtime.cache
    "inductor/dynamo/code_0.ab.pkl.lock",  # torch._dynamo.pgo
    "inductor/dynamo/code_0.ab.pkl.tmp",
]
TRANSIENT = {
    "cuda": [],
    "jax": [".lockfile", "jit_f-0123-atime"],
    "neuron": ["neuronxcc-2/MODULE_1/model.hlo_module.pb.lock"],
    "torch": TORCH,
    "triton": ["KEY/tmp.pid_12_6f1c/add.ptx", "KEY/lock"],
    "vllm": [
        "torch_compile_cache/torch_aot_compile/ab/rank_0_0/model.1234.tmp",
        "modelinfos/tmpx3k_9a2b",  # tempfile.mkstemp
        *(f"torch_compile_cache/ab/{each}" for each in TORCH),
    ],
    "TOY": ["a.lock", "b.tmp"],
}
KEPT = {
    "cuda": ["index", "a/b/0123"],
    "jax": ["jit_f-0123-cache"],
    "neuron": ["neuronxcc-2/MODULE_1/model.neff"],
    "torch": [
        "inductor/fxgraph/ab/fab/hash", "inductor/ab/cab.py", "inductor/ab/cab.main.so",
        "inductor/triton/0/KEY/add.cubin", "inductor/triton/0/KEY/__grp__add.json",
    ],
    "triton": ["KEY/add.cubin", "KEY/__grp__add.json"],
    "vllm": ["torch_compile_cache/ab/rank_0_0/backbone/vllm_compile_cache.py", "modelinfos/a.json"],
    "TOY": ["a", "b.bin"],
}  # fmt: skip


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_locks_and_half_written_files_are_left_out(framework: str, tmp_path: Path) -> None:
    for name in (*TRANSIENT[framework], *KEPT[framework]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {name for name, _ in files_of(tmp_path, FRAMEWORKS[framework].transient)}
    assert found == set(KEPT[framework])
