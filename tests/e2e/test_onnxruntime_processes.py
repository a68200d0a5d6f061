"""ONNX Runtime plans across CPUs, and in processes that run out of disk or memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.onnx_models import conv_net, mlp, save

from trivet.plans.backend import Built
from trivet.plans.backends import OnnxRuntime
from trivet.plans.graph import identify

_PRELUDE = """
import json, resource, sys
from pathlib import Path
import numpy as np
from trivet.plans.backends import OnnxRuntime
from trivet.plans.graph import identify

task = json.loads(sys.argv[1])
"""


def python(
    code: str, task: dict[str, Any], *, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a new process; ``task`` is there under this name."""
    return subprocess.run(
        [*prefix, sys.executable, "-c", _PRELUDE + textwrap.dedent(code), json.dumps(task)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
        timeout=240,
    )


def compiled(source: Path, folder: Path, level: str = "all") -> Built:
    folder.mkdir()
    return OnnxRuntime(level=level).compile(source, identify(source), {}, folder)


@pytest.mark.needs("qemu-user")
def test_portable_plans_are_the_same_bytes_and_the_same_numbers_on_an_older_cpu(
    tmp_path: Path,
) -> None:
    qemu = shutil.which("qemu-x86_64")
    assert qemu is not None, "qemu-x86_64 is missing: install Debian's package qemu-user"
    plans = {"dense": "all", "conv": "extended"}
    save(mlp(64), tmp_path / "dense.onnx")
    save(conv_net(), tmp_path / "conv.onnx")
    inputs = {
        "dense": np.random.default_rng(1).standard_normal((4, 64), np.float32),
        "conv": np.random.default_rng(2).standard_normal((1, 3, 32, 32), np.float32),
    }
    np.savez(tmp_path / "inputs.npz", **inputs)  # type: ignore[arg-type]
    native = {}
    for name, level in plans.items():
        built = compiled(tmp_path / f"{name}.onnx", tmp_path / f"{name}-native", level)
        assert built.portable
        native[name] = built.executable.run({"x": inputs[name]})["y"]
        (tmp_path / f"{name}-old").mkdir()

    done = python(
        """
        folder = Path(task["folder"])
        inputs = np.load(folder / "inputs.npz")
        outputs = {}
        for name, level in task["plans"].items():
            backend = OnnxRuntime(level=level, threads=1)
            model = folder / f"{name}.onnx"
            built = backend.compile(model, identify(model), {}, folder / f"{name}-old")
            assert built.portable
            loaded = backend.load(folder / f"{name}-native", built.detail)
            outputs[name] = loaded.run({"x": inputs[name]})["y"]
        np.savez(folder / "outputs.npz", **outputs)
        """,
        {"folder": str(tmp_path), "plans": plans},
        prefix=(qemu, "-cpu", "Nehalem"),
    )
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "outputs.npz") as old:
        for name in plans:
            np.testing.assert_allclose(old[name], native[name], rtol=1e-4, atol=1e-5)
            for file in (tmp_path / f"{name}-native").iterdir():
                assert (tmp_path / f"{name}-old" / file.name).read_bytes() == file.read_bytes()


def test_compiling_loading_and_running_print_nothing(tmp_path: Path) -> None:
    source = save(conv_net(), tmp_path / "conv.onnx")
    (tmp_path / "plan").mkdir()
    done = python(
        """
        model, folder = Path(task["model"]), Path(task["folder"])
        backend = OnnxRuntime()
        built = backend.compile(model, identify(model), {}, folder)
        x = np.zeros((1, 3, 32, 32), np.float32)
        for each in (built.executable, backend.load(folder, {}), backend.fallback(model, {})):
            assert each.run({"x": x})["y"].shape == (1, 10)
        """,
        {"model": str(source), "folder": str(tmp_path / "plan")},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


_COMPILE_AND_CLASSIFY = """
model, folder = Path(task["model"]), Path(task["folder"])
backend = OnnxRuntime()
backend.warm_import()
graph = identify(model)
if "file_size" in task:
    resource.setrlimit(resource.RLIMIT_FSIZE, (task["file_size"], task["file_size"]))
try:
    backend.compile(model, graph, {}, folder)
except Exception as error:
    print(type(error).__name__, backend.classify(error))
else:
    print("compiled")
"""


def test_a_plan_that_does_not_fit_is_an_os_error(tmp_path: Path) -> None:
    source = save(mlp(256), tmp_path / "model.onnx")
    (tmp_path / "plan").mkdir()
    task = {"model": str(source), "folder": str(tmp_path / "plan"), "file_size": 64 << 10}
    done = python(_COMPILE_AND_CLASSIFY, task)
    assert done.stdout.split() == ["OSError", "transient"], done.stderr


@pytest.mark.parametrize("name", ["model.onnx", "weights.bin"])
def test_a_full_disk_is_never_recorded_as_the_models_fault(name: str, tmp_path: Path) -> None:
    source = save(mlp(256), tmp_path / "model.onnx")
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / name).symlink_to("/dev/full")
    done = python(_COMPILE_AND_CLASSIFY, {"model": str(source), "folder": str(tmp_path / "plan")})
    assert done.stdout.split()[1:] == ["transient"], done.stdout + done.stderr


def test_what_there_is_no_memory_for_is_a_memory_error(tmp_path: Path) -> None:
    source = save(mlp(2048), tmp_path / "model.onnx")  # 32 MiB
    compiled(source, tmp_path / "plan")
    done = python(
        """
        model, folder = Path(task["model"]), Path(task["folder"])
        backend = OnnxRuntime(threads=1)
        backend.warm_import()
        graph = identify(model)
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + (24 << 20),) * 2)
        for attempt in (
            lambda: backend.load(folder, {}),
            lambda: backend.fallback(model, {}),
        ):
            try:
                attempt()
            except MemoryError:
                print("MemoryError")
        """,
        {"model": str(source), "folder": str(tmp_path / "plan")},
    )
    assert done.stdout.split() == ["MemoryError", "MemoryError"], done.stderr
