"""Several CPUs, one folder. The others are emulated: any machine can run this."""

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
from tests.support.onnx_models import conv_net, save

LOAD = """
    import json, sys
    import numpy as np
    from trivet import Cache
    from trivet.plans import Plans
    from trivet.plans.backends import Iree
    model, folder, cpu = sys.argv[1:]
    cache = Cache.open(folder, strict=True, disk_bytes=1 << 30)
    plan = Plans(cache, Iree(cpu=cpu), on_failure="refuse").load(model)
    found = plan.run({"x": np.ones((1, 3, 8, 8), np.float32)})["y"]
    print(json.dumps([plan.source, plan.loaded.key.digest.hex(), found.tolist()]))
"""


def load(model: Path, folder: Path, *, on: str = "", cpu: str = "host") -> tuple[str, str, Any]:
    """Source, key and result of a process on another CPU; empty for this machine's."""
    qemu = shutil.which("qemu-x86_64")
    assert not on or qemu is not None, "qemu-x86_64 is missing: install Debian's qemu-user"
    prefix = [str(qemu), "-cpu", on] if on else []
    done = subprocess.run(
        [*prefix, sys.executable, "-c", textwrap.dedent(LOAD), str(model), str(folder), cpu],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    source, key, found = json.loads(done.stdout.splitlines()[-1])
    return source, key, found


@pytest.mark.needs("qemu-user")
def test_a_plan_of_one_cpu_is_never_loaded_by_another(tmp_path: Path) -> None:
    """IREE loads a module for another CPU without a check, and the process ends in SIGILL."""
    path = save(conv_net(size=8), tmp_path / "m.onnx")
    native, native_key, expected = load(path, tmp_path / "cache")
    older, older_key, found = load(path, tmp_path / "cache", on="Nehalem")
    assert (native, older) == ("compiled", "compiled")
    assert native_key != older_key
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert load(path, tmp_path / "cache", on="Nehalem") == ("cache", older_key, found)
    assert load(path, tmp_path / "cache") == ("cache", native_key, expected)


@pytest.mark.needs("qemu-user")
def test_generic_code_is_compiled_once_for_all(tmp_path: Path) -> None:
    path = save(conv_net(size=8), tmp_path / "m.onnx")
    source, key, expected = load(path, tmp_path / "cache", cpu="generic")
    assert source == "compiled"
    source, other_key, found = load(path, tmp_path / "cache", on="Nehalem", cpu="generic")
    assert (source, other_key) == ("cache", key)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
