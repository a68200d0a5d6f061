"""Plans of JAX, kept and used as a serving process does."""

from __future__ import annotations

import json
import os
import pickletools
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.support.damage import expect_flips_found, flip_bit
from tests.support.jax_programs import dense, export, free, like, nested, weights

from trivet import Cache
from trivet.errors import BackendError, ShapeError
from trivet.plans import Plans, Shapes, Source
from trivet.plans.backends import Jax
from trivet.plans.backends.jax import PLAN_FILE
from trivet.plans.graph import identify


def plans(folder: Path, **options: Any) -> Plans:
    return Plans(Cache.open(folder / "cache"), Jax(), **options)


def test_buckets_of_a_free_axis(tmp_path: Path) -> None:
    path = free(tmp_path / "m.jaxexport")
    plan = plans(tmp_path).load(path, Shapes("arg0=b{2,4}x16"))
    assert [each.source for each in plan.prepare()] == ["compiled", "compiled"]
    x = np.random.default_rng(0).standard_normal((3, 16), np.float32)
    np.testing.assert_allclose(
        plan.run({"arg0": x})["out"], np.tanh(x @ weights()), rtol=1e-4, atol=1e-5
    )


def test_a_free_axis_without_a_size_runs_uncompiled_and_says_why(tmp_path: Path) -> None:
    plan = plans(tmp_path).load(free(tmp_path / "m.jaxexport"))
    assert plan.source is Source.UNCOMPILED
    assert "XLA compiles for sizes" in plan.loaded.error
    for size in (1, 3):
        x = np.ones((size, 16), np.float32)
        assert plan.run({"arg0": x})["out"].shape == (size, 16)


def test_sizes_that_contradict_the_program_are_refused(tmp_path: Path) -> None:
    path = dense(tmp_path / "m.jaxexport")
    (tmp_path / "plan").mkdir()
    with pytest.raises(ShapeError, match="can't be 5"):
        Jax().compile(path, identify(path), {"arg0": (5, 16)}, tmp_path / "plan")


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int64", "uint32", "float16", "bfloat16", "float64"]
)
def test_types_come_out_as_the_programs(tmp_path: Path, dtype: str) -> None:
    """Numbers of 64 bits stay whole although JAX cuts them unless it is told otherwise."""
    kind = jnp.dtype(dtype)
    path = export(lambda x: (x[::-1], x == x), tmp_path / "m.jaxexport", like(3, dtype=kind))
    x = np.array([1, 0, 3]).astype(kind)
    if dtype == "float64":
        x = x + 2.0**-40
    plan = plans(tmp_path).load(path)
    found = plan.run({"arg0": x})
    assert plan.source is Source.COMPILED
    assert found["out0"].dtype == kind
    np.testing.assert_array_equal(found["out0"], x[::-1])


def test_settings_made_in_this_process_enter_no_plan(tmp_path: Path) -> None:
    path = dense(tmp_path / "m.jaxexport")
    made = []
    for name, fast in (("a", False), ("b", True)):
        (tmp_path / name).mkdir()
        jax.config.update("jax_disable_most_optimizations", fast)
        try:
            Jax().compile(path, identify(path), {}, tmp_path / name)
        finally:
            jax.config.update("jax_disable_most_optimizations", False)
        made.append((tmp_path / name / PLAN_FILE).read_bytes())
    assert made[0] == made[1]


def test_jaxs_own_cache_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found there was verified by nobody."""
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(own))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    plan = plans(tmp_path).load(dense(tmp_path / "m.jaxexport"))
    assert plan.source is Source.COMPILED
    assert list(own.iterdir()) == []


def test_a_program_for_another_platform_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.jaxexport"
    exported = jax.export.export(jax.jit(jnp.sin), platforms=["cuda"])(like(2))
    path.write_bytes(exported.serialize())
    with pytest.raises(BackendError, match="exported for cuda"):
        plans(tmp_path).load(path)


def test_a_plan_holds_no_pickle(tmp_path: Path) -> None:
    path = nested(tmp_path / "m.jaxexport")
    (tmp_path / "plan").mkdir()
    Jax().compile(path, identify(path), {}, tmp_path / "plan")
    (file,) = (tmp_path / "plan").iterdir()
    with pytest.raises(ValueError):
        list(pickletools.genops(file.read_bytes()))


# -- processes and damage ----------------------------------------------------------------------

LOAD = """
    import json, sys
    import jax, numpy as np
    from trivet import Cache
    from trivet.plans import Plans
    from trivet.plans.backends import Jax
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    )
    plan = Plans(Cache.open(sys.argv[2]), Jax(), on_failure="refuse").load(sys.argv[1])
    found = plan.run({"arg0": np.ones((4, 16), np.float32)})
    by_itself = list(compiled)
    jax.jit(lambda x: x + 1)(1.0)
    assert compiled != by_itself  # the listener hears of what is compiled
    print(json.dumps([plan.source, plan.loaded.reason, by_itself, found["out"].tolist()]))
"""


def start(path: Path, cache: Path) -> tuple[str, str, list[str], Any]:
    """What a new process gets, and what it compiled by itself."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LOAD), str(path), str(cache)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    source, reason, compiled, found = json.loads(done.stdout.splitlines()[-1])
    return source, reason, compiled, found


def test_another_process_compiles_nothing_also_with_a_moved_folder(tmp_path: Path) -> None:
    path = dense(tmp_path / "m.jaxexport")
    *first, found = start(path, tmp_path / "cache")
    assert first[0] == "compiled"
    assert start(path, tmp_path / "cache") == ("cache", "", [], found)
    (tmp_path / "cache").rename(tmp_path / "moved")
    assert start(path, tmp_path / "moved") == ("cache", "", [], found)


SOLVED = {
    "cholesky": jnp.linalg.cholesky,
    "solve": lambda x: jnp.linalg.solve(x, x + 1),
    "eigvalsh": jnp.linalg.eigvalsh,
}


@pytest.mark.parametrize("name", SOLVED)
def test_functions_of_lapack_are_at_hand(name: str, tmp_path: Path) -> None:
    """JAX loads them when it lowers a call of one; a process that only loads a plan never does."""
    path = export(
        lambda x: SOLVED[name](x.T @ x + jnp.eye(16)), tmp_path / "m.jaxexport", like(4, 16)
    )
    *first, found = start(path, tmp_path / "cache")
    assert first[0] == "compiled"
    assert start(path, tmp_path / "cache") == ("cache", "", [], found)
    expected = SOLVED[name](jnp.full((16, 16), 4.0) + jnp.eye(16))  # as `LOAD` asks
    np.testing.assert_allclose(np.array(found), expected, rtol=1e-3, atol=1e-4)


FORKED = """
    import os, signal, sys, warnings
    import numpy as np
    from trivet import Cache
    from trivet.plans import Plans
    from trivet.plans.backends import Jax
    warnings.simplefilter("ignore")  # of JAX, which says that the child will wait for ever
    load = lambda: Plans(Cache.open(sys.argv[2]), Jax()).load(sys.argv[1])
    inputs = {"arg0": np.ones((4, 16), np.float32)}
    plan = load()
    plan.run(inputs)
    for use in (lambda: plan.run(inputs), load):
        if (child := os.fork()) == 0:
            signal.alarm(60)
            try:
                use()
            except OSError as error:
                os._exit(7 if "was forked" in str(error) else 8)
            os._exit(9)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(load().source)
"""


def test_a_forked_process_is_told_instead_of_kept_waiting(tmp_path: Path) -> None:
    path = dense(tmp_path / "m.jaxexport")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKED), str(path), str(tmp_path / "cache")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["7", "7", "cache"], done.stderr


def test_what_xla_can_not_write_down_is_not_compiled_again_and_again(tmp_path: Path) -> None:
    path = export(lambda x: x[jnp.argsort(x[:, 0])], tmp_path / "m.jaxexport", like(4, 16))
    x = np.random.default_rng(0).standard_normal((4, 16), np.float32)
    for reason in ("absent", "failed before"):
        plan = plans(tmp_path).load(path)
        assert plan.source is Source.UNCOMPILED
        assert "XLA can't write the plan down" in plan.loaded.error
        assert reason in plan.loaded.reason
        np.testing.assert_array_equal(plan.run({"arg0": x})["out"], x[np.argsort(x[:, 0])])


def test_a_flipped_bit_anywhere_is_found_before_xla_sees_it(tmp_path: Path) -> None:
    """XLA would crash of 13 of 64 such files, and give wrong numbers for 4."""
    path = dense(tmp_path / "m.jaxexport")
    made = plans(tmp_path)
    made.load(path)
    (file,) = (tmp_path / "cache").rglob(PLAN_FILE)
    expect_flips_found(made, path, file)


def test_a_damaged_plan_is_made_again(tmp_path: Path) -> None:
    path = dense(tmp_path / "m.jaxexport")
    found = start(path, tmp_path / "cache")[-1]
    (file,) = (tmp_path / "cache").rglob(PLAN_FILE)
    flip_bit(file)
    source, reason, _, again = start(path, tmp_path / "cache")
    assert (source, reason, again) == ("compiled", "corrupt", found)
    assert start(path, tmp_path / "cache") == ("cache", "", [], found)
