"""Many processes on two hosts, one compile in all."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.engine import eventually, finish, start
from tests.support.onnx_models import mlp, save

from trivet.entries import peek
from trivet.keys import Key
from trivet.stores.shared import ObjectStore, ValkeyStore

PROCESSES = 3

ASK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.support.engine import eventually, key
from tests.support.hosts import Host, read_plan
from trivet.cache import ArtifactLease
root, folder, objects, values = Path(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
host = Host(root / folder, objects, values)
mark = lambda name: (root / f"{name}-{os.getpid()}").touch()
found = host.cache.acquire_files(key("plan"), tags=["t"], waiting=lambda: mark("waits"))
if isinstance(found, ArtifactLease):
    mark("compiles")
    eventually((root / "go").exists, "the others wait", 60)
    (found.staging / "deep").mkdir()
    (found.staging / "deep" / "plan.bin").write_bytes(b"word" * 2_000_000)
    (found.staging / "facts.txt").write_text("two files")
    artifact = found.commit()
else:
    artifact = found.value
assert read_plan(artifact) == b"word"
host.close()
"""


@pytest.mark.parametrize("objects", ["folder", "s3"])
def test_two_hosts_with_many_processes_compile_once(
    request: pytest.FixtureRequest, tmp_path: Path, valkey: str, objects: str
) -> None:
    url = f"file://{tmp_path}/shared" if objects == "folder" else request.getfixturevalue("s3")
    here = Path(__file__).parents[2]
    processes = [
        start(ASK, here, tmp_path, f"host-{i % 2}", url, valkey) for i in range(2 * PROCESSES)
    ]

    def count(what: str) -> int:
        return len(list(tmp_path.glob(f"{what}-*")))

    eventually(lambda: count("waits") == 2 * PROCESSES - 1, "all others wait", 60)
    eventually(lambda: count("compiles") > 0, "one compiles", 60)
    (tmp_path / "go").touch()
    for process in processes:
        finish(process, 120)
    assert count("compiles") == 1


PLANS = """
import sys
from trivet import Cache
from trivet.plans import Plans
from trivet.plans.backends import OnnxRuntime
folder, objects, values, model = sys.argv[1:]
sys.stdin.readline()
with Cache.open(folder, shared=[objects, values]) as cache:
    plan = Plans(cache, OnnxRuntime(threads=1)).load(model)
    print(plan.source, plan.loaded.reason)
"""


def test_onnx_runtime_compiles_once_on_two_hosts(tmp_path: Path, valkey: str, s3: str) -> None:
    model = tmp_path / "model.onnx"
    save(mlp(64), model)
    processes = [start(PLANS, tmp_path / f"host-{i % 2}", s3, valkey, model) for i in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    sources = sorted(finish(process, 120).split()[0] for process in processes)
    assert sources == ["cache", "cache", "cache", "compiled"]
    (head,) = [each.head for each in ObjectStore(s3, timeout=20).scan()]
    assert Key.from_canonical(peek(head)[0]).space.startswith("plan/")
    assert not list(ValkeyStore(valkey, timeout=20).scan()), "remembered inodes are not shared"
