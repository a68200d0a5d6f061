"""The processes of one job under one ``trivet exec``, as a launcher starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.guarded import start

LAUNCHER = """
import os, socket, subprocess, sys
with socket.create_server(("127.0.0.1", 0)) as free:
    port = str(free.getsockname()[1])
job = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
ranks = [
    subprocess.Popen(
        [sys.executable, sys.argv[1]],
        env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
    )
    for rank in range(2)
]
sys.exit(any([each.wait() for each in ranks]))
"""

# The constant is in PyTorch's own key. What the operator's code answers is not.
WORKER = """
import os, torch
import torch.distributed as dist

@torch.library.custom_op("toy::shard", mutates_args=())
def shard(x: torch.Tensor) -> torch.Tensor:
    return x[: 3 + int(os.environ["RANK"])].clone()

@shard.register_fake
def _(x):
    return x.new_empty(3 + int(os.environ["RANK"]))

dist.init_process_group("gloo")
rank = dist.get_rank()
x = torch.ones(8)
scaled = torch.compile(lambda x: x * (rank + 2))(x)
sharded = torch.compile(lambda x: torch.cat([shard(x) + 1, x]))(x)
total = scaled.clone()
dist.all_reduce(total)
told = f"{rank} {scaled[0].item()} {tuple(sharded.shape)} {total[0].item()}\\n"
os.write(1, told.encode())
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_rank_of_a_job_gets_what_another_compiled(tmp_path: Path) -> None:
    launcher, worker = tmp_path / "launch.py", tmp_path / "worker.py"
    launcher.write_text(LAUNCHER)
    worker.write_text(WORKER)
    restored = []
    for _ in range(2):
        process = start(tmp_path / "c", launcher, worker)
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
        assert sorted(out.splitlines()) == ["0 2.0 (11,) 5.0", "1 3.0 (12,) 5.0"]
        told = json.loads(err.splitlines()[-1])["effects"]
        effects = [each for each in told if each["framework"] == "torch"]
        restored.append([each["restored"] for each in effects])
        misses = [each["counters"]["misses"] for each in effects]
    assert restored == [["empty", "empty"], ["hit", "hit"]]
    assert misses == [0, 0]
