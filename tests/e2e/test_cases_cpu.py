"""Field cases: several CPUs, one folder. The others are emulated: any machine can run this."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.cases import BACKENDS, answer, child, result
from tests.support.onnx_models import conv_net, mlp, save

CONV, DENSE = conv_net(size=8, seed=12), mlp(seed=12)


def emulated(cpu: str) -> tuple[str, ...]:
    qemu = shutil.which("qemu-x86_64")
    assert qemu is not None, "qemu-x86_64 is missing: install Debian's package qemu-user"
    return (qemu, "-cpu", cpu)


def answers(folder: str, paths: list[str], backend: str) -> list[dict[str, Any]]:
    """In a child: one answer for each model."""
    return [answer(folder, path, backend, strict=True) for path in paths]


def ask(folder: Path, paths: list[Path], backend: str, cpu: str = "") -> list[dict[str, Any]]:
    prefix = emulated(cpu) if cpu else ()
    job = child(f"{__name__}:answers", str(folder), [*map(str, paths)], backend, {}, prefix=prefix)
    found: list[dict[str, Any]] = result(job, 280)
    return found


@pytest.mark.needs("qemu-user")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_plan_of_one_cpu_is_never_loaded_by_another(backend: str, tmp_path: Path) -> None:
    """ONNX Runtime's convolutions are laid out for the CPU that compiled them, and another CPU
    would compute other numbers from them without a word."""
    path = save(CONV, tmp_path / "m.onnx")
    (native,) = ask(tmp_path / "c", [path], backend)
    (older,) = ask(tmp_path / "c", [path], backend, "Nehalem")
    assert [native["source"], older["source"]] == ["compiled", "compiled"]
    assert older["misses"] == ["absent"], "not even looked at: it is another key"
    assert native["key"] != older["key"]
    np.testing.assert_allclose(older["y"], native["y"], rtol=1e-3, atol=1e-4)
    for cpu, first in (("Nehalem", older), ("", native)):
        (again,) = ask(tmp_path / "c", [path], backend, cpu)
        assert (again["source"], again["key"]) == ("cache", first["key"])
        np.testing.assert_allclose(again["y"], first["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.needs("qemu-user")
def test_three_cpus_share_a_folder_and_portable_plans(tmp_path: Path) -> None:
    """A plan in which nothing depends on the CPU is made once for all of them."""
    conv, dense = save(CONV, tmp_path / "conv.onnx"), save(DENSE, tmp_path / "dense.onnx")
    cpus = ("Haswell-noTSX", "", "Nehalem")
    found = [ask(tmp_path / "c", [conv, dense], "onnxruntime", cpu) for cpu in cpus]
    assert [[each["source"] for each in both] for both in found] == [
        ["compiled", "compiled"],
        ["compiled", "cache"],
        ["compiled", "cache"],
    ]
    assert len({both[0]["key"] for both in found}) == 3
    assert len({both[1]["key"] for both in found}) == 1
    for both in found[1:]:
        for each, first in zip(both, found[0], strict=True):
            np.testing.assert_allclose(each["y"], first["y"], rtol=1e-3, atol=1e-4)
