"""Another CPU beside this one, emulated: any machine can run this."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tests.support.jax_programs import dense, weights

from trivet import Cache
from trivet.plans import Plans
from trivet.plans.backends import Jax

LOAD = """
    import json, sys
    import numpy as np
    from trivet import Cache
    from trivet.plans import Plans
    from trivet.plans.backends import Jax
    cache = Cache.open(sys.argv[2], strict=True, disk_bytes=1 << 30)
    plan = Plans(cache, Jax()).load(sys.argv[1])
    found = plan.run({"arg0": np.ones((4, 16), np.float32)})["out"]
    print(json.dumps([plan.source, plan.loaded.error, found.tolist()]))
"""


@pytest.mark.needs("qemu-user")
def test_a_plan_of_one_cpu_is_never_loaded_by_another(tmp_path: Path) -> None:
    """XLA logs errors for such a plan, and then the process ends in SIGILL.

    The emulator does not reach the process that compiles, so no plan can be made there either.
    JAX needs AVX, which Nehalem has not.
    """
    path = dense(tmp_path / "m.jaxexport")
    with Cache.open(tmp_path / "cache", disk_bytes=1 << 30) as cache:
        Plans(cache, Jax()).load(path)
    qemu = shutil.which("qemu-x86_64")
    assert qemu is not None, "qemu-x86_64 is missing: install Debian's qemu-user"
    command = [qemu, "-cpu", "Haswell-noTSX", sys.executable, "-c", textwrap.dedent(LOAD)]
    done = subprocess.run(
        [*command, str(path), str(tmp_path / "cache")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    source, error, found = json.loads(done.stdout.splitlines()[-1])
    assert source == "uncompiled"
    assert "another CPU" in error
    expected = np.tanh(np.ones((4, 16), np.float32) @ weights())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
