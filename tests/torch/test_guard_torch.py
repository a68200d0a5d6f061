"""``torch.compile`` under a guard inside the program: what another host compiles, and what not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import eventually
from tests.torch.test_exec_torch import LIBRARY

PROGRAM = """
import json, sys
from trivet import Cache
from trivet.plans.folders import guarded

with Cache.open(sys.argv[1], shared=sys.argv[2]) as cache, guarded(cache, "torch") as run:
    import torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Softmax(-1))
    x = torch.linspace(-1, 1, 64).reshape(4, 16)
    with torch.no_grad():
        error = (torch.compile(model)(x) - model(x)).abs().max().item()
    run.capture()
    (effect,) = run.effects()
try:
    with guarded(cache, "torch"):
        late = "guarded"
except Exception as error_:
    late = str(error_)
print(json.dumps({
    "error": error, "restored": effect.restored, "hits": effect.counters.hits,
    "misses": effect.counters.misses, "late": late,
}))
"""
_COMPILER = """#!/bin/sh
case "$*" in --version|-v|-print-prog-name=*) ;; *) echo "$*" >> {log} ;; esac
exec {real} "$@"
"""


def run(host: Path, shared: Path, compiler: Path) -> dict[str, Any]:
    """The program on a host: a cache folder, a home and a folder for temporary files of its own."""
    (host / "tmp").mkdir(parents=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(host),
        "TMPDIR": str(host / "tmp"),
        "CXX": str(compiler),
    }
    del environment["TORCHINDUCTOR_VEC_ISA_OK"]  # so that instruction sets are tried out
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(host / "cache"), f"file://{shared}"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


BEFORE = """
import sys
from trivet import Cache
import torch
import operators
from trivet.plans.folders import guarded

with Cache.open(sys.argv[1]) as cache:
    with guarded(cache, "torch"):
        pass  # an earlier one, which found nothing to do
    with guarded(cache, "torch") as run:
        x = torch.arange(8, dtype=torch.float32)
        f = lambda x: operators.scale(x) + 1
        found = torch.compile(f)(x)
        print(found.dtype, torch.equal(found, f(x)), run.effects()[-1].restored)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_operator_from_before_the_guard_is_another_folder_once_it_was_edited(
    tmp_path: Path,
) -> None:
    program, operators = tmp_path / "program.py", tmp_path / "operators.py"
    program.write_text(BEFORE)
    said = []
    for dtype in ("float32", "int32", "float32"):
        operators.write_text(LIBRARY.replace("torch.X", f"torch.{dtype}"))
        # What changed when a program began may have changed after that.
        eventually(lambda: time.time() - operators.stat().st_ctime > 0.1, "time passes")
        done = subprocess.run(
            [sys.executable, str(program), str(tmp_path / "cache")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said == [
        "torch.float32 True empty\n", "torch.int32 True empty\n", "torch.float32 True hit\n",
    ]  # fmt: skip


LEAVES = """
import json, sys
import torch, torch._dynamo, torch._inductor.codecache as codecache
from trivet import Cache
from trivet.plans.folders import guarded

handler, registry = torch._dynamo.callback.callback_handler, torch._dynamo.backends.registry
places = [
    (torch.library.Library, "impl"), (registry, "lookup_backend"),
    (handler, "run_start_callbacks"), (handler, "run_end_callbacks"),
    (codecache, "_precompile_header"), (codecache, "_HEADER_DIR"),
]

def there():
    return [vars(owner).get(name) for owner, name in places]

before, plain = there(), [getattr(owner, name) for owner, name in places[:-1]]
with Cache.open(sys.argv[1]) as cache:
    for _ in range(10):
        with guarded(cache, "cuda"):
            assert [each.__wrapped__ for each in there()[:-1]] == plain
            assert there()[-1] != before[-1]
        assert all(one is other for one, other in zip(there(), before)), there()
    with guarded(cache, "cuda"):
        torch.library.Library.impl = print  # somebody else's
    assert torch.library.Library.impl is print
print("as before")
"""


def test_pytorchs_functions_are_its_own_again_after_each_guard(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVES, str(tmp_path / "cache")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "as before\n"), done.stderr


@pytest.mark.timeout(900)
def test_another_host_starts_no_compiler_and_inductor_counts_hits(tmp_path: Path) -> None:
    """Probes of the instruction set and compiled headers included."""
    log, compiler, shared = tmp_path / "log", tmp_path / "g++", tmp_path / "shared"
    compiler.write_text(_COMPILER.format(log=log, real=shutil.which("g++")))
    compiler.chmod(0o700)
    shared.mkdir()
    first = run(tmp_path / "one", shared, compiler)
    assert (first["restored"], first["hits"], first["misses"]) == ("empty", 0, 1)
    assert log.read_text().count(".cpp") >= 2  # a probe and a kernel
    assert "/headers/" in log.read_text()  # compiled ahead of the kernel, for this run alone
    assert not list((tmp_path / "one").rglob("precompiled_headers"))
    assert not list((tmp_path / "one").rglob("*.gch"))
    log.write_text("")
    second = run(tmp_path / "two", shared, compiler)
    assert (second["restored"], second["hits"], second["misses"]) == ("hit", 1, 0)
    assert log.read_text() == ""
    for each in (first, second):
        assert each["error"] < 1e-5
        assert "torch._inductor is imported already" in each["late"]
