"""Identities are the same in every process and in every version that claims the same number."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support import onnx_models

from trivet.plans.graph import identify

_SCRIPT = """
import json, sys
from pathlib import Path
from trivet.plans.graph import identify
graph = identify(Path(sys.argv[1]))
print(json.dumps([graph.structure.hex(), graph.weights.hex(), graph.metadata.hex(),
                  [repr(each) for each in graph.inputs + graph.outputs], graph.operators]))
assert not {"onnx", "google", "numpy"} & {name.split(".")[0] for name in sys.modules}
"""


def _in_new_process(path: Path, seed: int) -> object:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, path.name],
        cwd=path.parent,
        env={**os.environ, "PYTHONHASHSEED": str(seed), "LC_ALL": "C", "TZ": f"UTC+{seed}"},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def test_two_processes_two_hash_seeds_two_folders_two_times(tmp_path: Path) -> None:
    one = onnx_models.save(onnx_models.every_kind(), tmp_path / "one" / "model.onnx")
    two = onnx_models.save(onnx_models.every_kind(), tmp_path / "other" / "place" / "m.onnx")
    os.utime(two, (1e9, 1e9))
    assert _in_new_process(one, 1) == _in_new_process(two, 2)


def test_an_identity_is_what_it_was_when_this_was_written(tmp_path: Path) -> None:
    """If this fails on purpose, raise ``VERSION`` in ``identity.py`` and write the new digests.

    The file is written byte by byte, so that no other version of a package changes it.
    """
    field = onnx_models.field
    node = field(1, b"x") + field(1, b"w") + field(2, b"y") + field(4, b"Mul")
    weight = b"\x08\x02\x10\x01" + field(8, b"w") + field(9, b"\0\0\x80?\0\0\0@")
    type_ = field(1, b"\x08\x01" + field(2, field(1, b"\x08\x02")))
    graph = field(1, node) + field(2, b"g") + field(5, weight)
    graph += field(11, field(1, b"x") + field(2, type_))
    graph += field(12, field(1, b"y") + field(2, type_))
    data = b"\x08\x0a" + field(2, b"tests") + field(7, graph) + field(8, b"\x10\x11")
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    found = identify(path)
    assert (found.structure.hex(), found.weights.hex(), found.metadata.hex()) == (
        "194bbac954a515cf2f83c9e1902dcf096a1750e46f13bb875d08d59f829472a1",
        "30f8ce4d824ea43c42f8edbd92da98b2101756b82d3f7e1dfe99d04030bcad86",
        "a4726dfb417a88cd6c7de0395b081b188530d2d6b64296171f771d9d951a85d2",
    )
