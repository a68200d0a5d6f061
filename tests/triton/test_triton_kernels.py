"""Kernels of Triton: compiled once for all processes, verified, and apart where they differ.

Triton compiles for GPUs that are not there. Nothing is launched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl
from tests.support import triton_constants, triton_kernels
from tests.support.damage import flip_bit
from tests.support.disks import fill, small_disk
from tests.support.triton_kernels import compiled

from trivet.cache import Cache
from trivet.events import EventKind
from trivet.plans.backends import TritonKernels
from trivet.plans.environment import is_read
from trivet.plans.facts.triton import ENVIRONMENT
from trivet.testing import Recorder

ELF = "7f454c46"


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with Cache.open(tmp_path / "cache") as cache:
        yield cache


@pytest.fixture
def kernels(cache: Cache) -> Iterator[TritonKernels]:
    with TritonKernels(cache) as kernels:
        yield kernels


def start(folder: Path, *capabilities: int, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.triton_kernels", str(folder),
         *map(str, capabilities)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def told(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    answer: list[dict[str, Any]] = json.loads(out.splitlines()[-1])
    return answer


def test_another_process_compiles_nothing_also_with_a_moved_folder(tmp_path: Path) -> None:
    """Triton's own manifests hold absolute paths: in a moved folder every kernel is a miss."""
    first = told(start(tmp_path / "one", 80, 90))
    assert [each["hit"] for each in first] == [False, False]
    assert first[0]["cubin"].startswith(ELF)
    assert (".target sm_80" in first[0]["ptx"], ".target sm_90a" in first[1]["ptx"]) == (True, True)
    shutil.move(tmp_path / "one", tmp_path / "two")
    own = tmp_path / "triton's"  # where Triton's own manager would write
    second = told(start(tmp_path / "two", 80, 90, TRITON_CACHE_DIR=str(own)))
    assert [each["hit"] for each in second] == [True, True]
    assert [each["cubin"] for each in second] == [each["cubin"] for each in first]
    assert not own.exists()
    paths = [path for each in second for path in each["paths"].values()]
    assert all(Path(path).is_relative_to(tmp_path / "two") for path in paths)


def test_processes_at_the_same_time_compile_once(tmp_path: Path) -> None:
    answers = [told(each) for each in [start(tmp_path / "cache", 90) for _ in range(3)]]
    assert sorted(each[0]["hit"] for each in answers) == [False, True, True]
    assert len({each[0]["cubin"] for each in answers}) == 1


def test_damage_is_found_before_triton_reads_it_and_healed(tmp_path: Path) -> None:
    """Triton itself reads whatever lies there."""
    events = Recorder()
    with Cache.open(tmp_path / "cache", sink=events) as cache, TritonKernels(cache):
        good = compiled(80)
        for suffix, damage in (("cubin", flip_bit), ("ptx", cut), ("json", cut)):
            (path,) = (tmp_path / "cache" / "artifacts").rglob(f"add.{suffix}")
            damage(path)
            healed = compiled(80)
            assert (healed["hit"], healed["cubin"]) == (False, good["cubin"])
            assert compiled(80)["hit"]
    assert events.count(EventKind.QUARANTINED) == 3


def cut(path: Path) -> None:
    path.chmod(0o600)
    os.truncate(path, path.stat().st_size // 2)


def test_targets_constants_types_options_and_helpers_are_told_apart(
    kernels: TritonKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not compiled(80)["hit"]
    assert compiled(80)["hit"]
    others = [compiled(89), compiled(80, num_warps=8), compiled(80, num_stages=5)]
    changed = [{"block": 256}, {"pointer": "*fp16"}]
    for change in changed:
        source = triton_kernels.source(**change)
        monkeypatch.setattr(triton_kernels, "source", lambda source=source: source)
        others.append(compiled(80))
        monkeypatch.undo()
    assert [each["hit"] for each in others] == [False] * 5

    @triton.jit
    def scaled(x):  # type: ignore[no-untyped-def]
        return x * 3.0

    monkeypatch.setattr(triton_kernels, "scaled", scaled)
    monkeypatch.setattr(triton_kernels.add, "hash", None)  # as in a process that starts anew
    edited = compiled(80)
    assert not edited["hit"]


@tl.core.builtin
def shifted_by_more(x, _semantic=None):  # type: ignore[no-untyped-def]
    return _semantic.add(x, _semantic.to_tensor(3), True)


TAKEN = {
    "a constant": ("SCALE", tl.constexpr(5)),
    "a type": ("KIND", tl.float16),
    "what a function takes that runs while it is compiled": ("NUMBER", 7),
    "a function of the compiler's": ("shifted", shifted_by_more),
}


@pytest.mark.parametrize("what", TAKEN)
def test_what_a_kernel_takes_from_elsewhere_is_told_apart(
    what: str, kernels: TritonKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's own digest holds none of these."""
    monkeypatch.setattr(triton_kernels, "source", triton_kernels.takes_source)
    monkeypatch.setattr(triton_kernels.takes, "hash", None)  # as in a process that starts anew
    before = compiled(80)
    assert compiled(80)["hit"]
    monkeypatch.setattr(triton_constants, *TAKEN[what])
    for each in (triton_kernels.takes, triton_kernels.number):
        monkeypatch.setattr(each, "hash", None)
    edited = compiled(80)
    assert not edited["hit"]
    assert edited["ptx"] != before["ptx"]


def test_an_assembler_of_the_same_version_and_other_content_is_another_key(
    kernels: TritonKernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton asks for its version alone."""
    mine = tmp_path / "ptxas"
    mine.write_text(f'#!/bin/sh\nexec {triton.knobs.nvidia.ptxas.path} "$@"\n')
    mine.chmod(0o700)
    before = kernels.key("k", "f", of_this_machine=False)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(mine))
    one = kernels.key("k", "f", of_this_machine=False)
    mine.write_text(mine.read_text() + "# patched\n")
    two = kernels.key("k", "f", of_this_machine=False)
    assert len({each.digest for each in (before, one, two)}) == 3
    assert one["assemblers"] != two["assemblers"]


def test_a_kernel_is_the_targets_alone_and_other_files_are_this_machines(
    kernels: TritonKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernels.key("k", "f", of_this_machine=False)
    launcher = kernels.key("k", "f", of_this_machine=True)
    assert "host" not in kernel
    assert {"host", "graphics", "compilers"} <= set(launcher)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")  # workers of one host compile once
    assert kernels.key("k", "f", of_this_machine=False) == kernel
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    assert kernels.key("k", "f", of_this_machine=False) != kernel


def test_a_kernel_that_fails_to_compile_keeps_nobody_waiting(kernels: TritonKernels) -> None:
    @triton.jit
    def broken(x):  # type: ignore[no-untyped-def]
        no_such_name(x)  # type: ignore[name-defined]  # noqa: F821

    source = triton_kernels.ASTSource(broken, {"x": "*fp32"})
    target = triton_kernels.GPUTarget("cuda", 80, 32)
    kept = []  # an error that somebody holds on to, and with it all that was on the stack
    for _ in range(2):
        with pytest.raises(Exception, match="no_such_name") as caught:
            triton.compile(source, target=target)
        kept.append(caught)


def test_without_a_store_kernels_compile_all_the_same(tmp_path: Path) -> None:
    with Cache(None) as cache, TritonKernels(cache) as kernels:
        found = compiled(80)
        assert found["cubin"].startswith(ELF)
        alone = kernels.manager("K")
        path = Path(alone.put(b"written without being asked for", "file"))
        assert path.exists()
        assert all(Path(each).exists() for each in found["paths"].values())


@pytest.mark.needs("root")
def test_a_disk_that_is_full_fails_no_compilation(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", 64) as disk,
        Cache.open(disk / "cache") as cache,
        TritonKernels(cache) as kernels,
    ):
        single = kernels.manager("K")
        assert single.get_file("launcher.so") is None
        begun = kernels.manager("L")
        assert begun.get_group("k.json") is None
        group = {"k.ptx": begun.put("code", "k.ptx")}
        filler = fill(disk)
        group["k.json"] = begun.put("{}", "k.json")
        begun.put_group("k.json", group)
        assert [Path(group[each]).read_text() for each in ("k.ptx", "k.json")] == ["code", "{}"]
        assert Path(single.put(b"code", "launcher.so")).read_bytes() == b"code"
        found = compiled(80)
        assert found["cubin"].startswith(ELF)
        assert all(Path(each).exists() for each in found["paths"].values())
        filler.unlink()
        assert not compiled(80)["hit"]
        assert compiled(80)["hit"]


def test_files_that_are_gone_before_they_are_kept_are_written_elsewhere(
    kernels: TritonKernels, tmp_path: Path
) -> None:
    """As where somebody clears the cache's folder meanwhile."""
    manager = kernels.manager("K")
    assert manager.get_group("k.json") is None
    group = {name: manager.put("text", name) for name in ("k.ptx", "k.json")}
    shutil.rmtree(Path(group["k.json"]).parent)
    manager.put_group("k.json", group)
    assert [Path(path).read_text() for path in group.values()] == ["text", "text"]
    assert kernels.manager("K").get_group("k.json") is None


def test_single_files_are_kept_too(kernels: TritonKernels) -> None:
    """As launchers and results of tuning are: asked for first, then written."""
    first = kernels.manager("K")
    assert first.get_file("launcher.so") is None
    path = Path(first.put(b"machine code", "launcher.so"))
    assert path.read_bytes() == b"machine code"
    assert kernels.manager("K").get_file("launcher.so") == str(path)
    assert kernels.manager("L").get_file("launcher.so") is None


def test_afterwards_triton_has_its_own_manager_again(cache: Cache) -> None:
    with TritonKernels(cache):
        with TritonKernels(cache):
            pass
        assert triton.knobs.cache.manager_class is not None
    assert triton.knobs.cache.manager_class is None
    assert "TRITON_CACHE_MANAGER" not in os.environ


def test_every_variable_that_triton_reads_is_classified() -> None:
    """By its own table of them."""
    tables = [each for each in vars(triton.knobs).values()
              if isinstance(each, triton.knobs.base_knobs)]  # fmt: skip
    names = {knob.key for table in tables for knob in table.knob_descriptors.values()}
    assert len(names) > 50
    assert {each for each in names if not is_read(each, ENVIRONMENT)} == set()
