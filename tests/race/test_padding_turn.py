"""Many processes start at once, and one of them asks the model whether padding shows."""

from __future__ import annotations

from pathlib import Path

from tests.support.engine import finish, start
from tests.support.onnx_models import dynamic_batch, save

ASK = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.support.living import Living
from trivet.cache import Cache
from trivet.plans import Plans, Shapes
from trivet.plans.backends import OnnxRuntime
backend = Living(OnnxRuntime())
sys.stdin.readline()
with Cache.open(sys.argv[2]) as cache:
    Plans(cache, backend).load(sys.argv[3], Shapes("x=N{4}x16"))
print(*backend.log, backend.most)
"""


def test_one_process_asks_and_the_others_have_its_verdict(tmp_path: Path) -> None:
    model = save(dynamic_batch(), tmp_path / "m.onnx")
    processes = [start(ASK, Path(__file__).parents[2], tmp_path / "c", model) for _ in range(3)]
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    told = sorted(finish(each).strip() for each in processes)
    assert told == ["fallback compile 1", "load 1", "load 1"]
