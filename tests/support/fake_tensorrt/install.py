"""Puts the stand-ins where wheels would put TensorRT, and a GPU where the kernel would show one."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trivet.plans.backends import TensorRt
from trivet.plans.facts import machine

_HERE = Path(__file__).parent
_MODULES = ("tensorrt", "tensorrt_bindings", "tensorrt_libs", "cuda")
_PROC = "FAKE_TENSORRT_PROC"


def install(folder: Path) -> Path:
    """Make a ``site-packages`` with TensorRT in ``folder``; returns it."""
    site = folder / "site"
    for package in ("tensorrt", "tensorrt_bindings", "tensorrt_libs", "cuda/bindings"):
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").touch()
    shutil.copy(_HERE / "bindings.py", site / "tensorrt" / "__init__.py")
    shutil.copy(_HERE / "cuda_runtime.py", site / "cuda" / "bindings" / "runtime.py")
    (site / "tensorrt_bindings" / "tensorrt.so").write_bytes(b"\0FP16\0TF32\0STRICT_NANS\0UINT8\0")
    for name in ("libnvinfer.so.10", "libnvinfer_plugin.so.10", "libnvonnxparser.so.10"):
        (site / "tensorrt_libs" / name).write_text(name)
    for name in ("libs", "bindings"):
        record = site / f"tensorrt_cu12_{name}-10.14.1.dist-info" / "RECORD"
        record.parent.mkdir()
        record.write_text(f"tensorrt_{name}/__init__.py,sha256=x,0\n")
    return site


@contextlib.contextmanager
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """TensorRT and one GPU, in this process and those that it starts; gives ``folder``."""
    monkeypatch.setenv(_PROC, "")  # so that it is put back
    monkeypatch.setattr(machine, "_NVIDIA", show_gpus(folder, "NVIDIA H200"))
    monkeypatch.syspath_prepend(install(folder))
    yield folder
    for name in [each for each in sys.modules if each.partition(".")[0] in _MODULES]:
        del sys.modules[name]


def show_gpus(folder: Path, *models: str, driver: str = "580.95.05") -> Path:
    """Write what the kernel says of GPUs; returns the folder that stands for its."""
    proc = folder / "proc"
    shutil.rmtree(proc, ignore_errors=True)
    proc.mkdir(parents=True)
    (proc / "version").write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}\n")
    for number, model in enumerate(models):
        (proc / "gpus" / f"0000:0{number}:00.0").mkdir(parents=True)
        information = proc / "gpus" / f"0000:0{number}:00.0" / "information"
        information.write_text(
            f"Model: \t\t {model}\nIRQ:   \t\t 42\nGPU UUID: \t GPU-{number}a0b1c2d\n"
        )
    os.environ[_PROC] = str(proc)
    return proc


def make(**options: Any) -> TensorRt:
    """A backend that sees the GPUs of `show_gpus`, in whatever process."""
    machine._NVIDIA = Path(os.environ[_PROC])
    return TensorRt(**options)
