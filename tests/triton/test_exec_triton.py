"""Triton's own cache under ``trivet exec``. Cubins are real, for GPUs that are not there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.damage import flip_bit
from tests.support.guarded import Guarded, start

PROGRAM = """
import json, sys
from tests.support.triton_kernels import compiled
print(json.dumps([compiled(int(each)) for each in sys.argv[1:]]))
"""


def begin(cache: Path, *capabilities: int) -> subprocess.Popen[str]:
    program = cache.parent / "program.py"
    program.write_text(PROGRAM)
    return start(cache, program, *capabilities, PYTHONPATH=os.pathsep.join(sys.path))


def told(process: subprocess.Popen[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What Triton says of each kernel, and what the guard did for Triton."""
    ended = Guarded(process, 250)
    return json.loads(ended.out.splitlines()[-1]), ended.effects["triton"]


def hits(answers: list[dict[str, Any]]) -> list[bool]:
    return [each["hit"] for each in answers]


def test_the_second_start_compiles_nothing_also_with_a_moved_cache(tmp_path: Path) -> None:
    """Triton's manifests hold absolute paths, and each run's folder is another one."""
    first, effect = told(begin(tmp_path / "one", 80, 90))
    assert hits(first) == [False, False]
    assert effect["restored"] == "empty"
    manifests = list((tmp_path / "one" / "artifacts").rglob("__grp__*.json"))
    assert len(manifests) == 2
    assert all('"@trivet@/' in each.read_text() for each in manifests)
    shutil.move(tmp_path / "one", tmp_path / "two")
    second, effect = told(begin(tmp_path / "two", 80, 90))
    assert hits(second) == [True, True]
    assert effect["restored"] == "hit"
    assert [each["cubin"] for each in second] == [each["cubin"] for each in first]
    for each in second:
        assert all(path.startswith(f"{tmp_path}/two/runs/") for path in each["paths"].values())


TAKES = """
import json, constants, triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def takes(out, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(out + index, index * constants.SCALE)

hits = []
triton.knobs.compilation.listener = lambda cache_hit, **_: hits.append(cache_hit)
source = ASTSource(takes, {"out": "*i32", "BLOCK": "constexpr"}, {"BLOCK": 32})
kernel = triton.compile(source, target=GPUTarget("cuda", 80, 32))
print(json.dumps([{"hit": hits[0], "ptx": kernel.asm["ptx"]}]))
"""


def test_what_a_kernel_takes_from_another_module_is_told_apart(tmp_path: Path) -> None:
    """Triton's own digest holds nothing of it."""
    program = tmp_path / "program.py"
    program.write_text(TAKES)
    answers = []
    for scale in (5, 7, 5):
        text = f"import triton.language as tl\nSCALE = tl.constexpr({scale})"
        (tmp_path / "constants.py").write_text(text)
        process = start(tmp_path / "c", program, TRITON_DEFAULT_FP_FUSION="1")
        answers.append(told(process)[0])
    assert hits([each[0] for each in answers]) == [False, False, True]
    assert answers[2][0]["ptx"] == answers[0][0]["ptx"] != answers[1][0]["ptx"]


def test_a_kernel_for_another_target_is_added(tmp_path: Path) -> None:
    told(begin(tmp_path / "c", 80))
    assert hits(told(begin(tmp_path / "c", 80, 90))[0]) == [True, False]
    assert hits(told(begin(tmp_path / "c", 80, 90))[0]) == [True, True]


def test_damage_is_found_before_triton_reads_it_and_healed(tmp_path: Path) -> None:
    first, _ = told(begin(tmp_path / "c", 80))
    (cubin,) = (tmp_path / "c" / "artifacts").rglob("add.cubin")
    flip_bit(cubin)
    healed, effect = told(begin(tmp_path / "c", 80))
    assert (hits(healed), "damaged" in effect["reason"]) == ([False], True)
    assert healed[0]["cubin"] == first[0]["cubin"]
    assert hits(told(begin(tmp_path / "c", 80))[0]) == [True]


def test_two_at_once_compile_once(tmp_path: Path) -> None:
    answers = [told(each)[0] for each in [begin(tmp_path / "c", 80) for _ in range(2)]]
    assert sorted(map(hits, answers)) == [[False], [True]]
