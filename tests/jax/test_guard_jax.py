"""JAX's own cache under a guard inside the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import json, sys
from trivet import Cache
from trivet.plans.folders import guarded

with Cache.open(sys.argv[1]) as cache, guarded(cache, "jax") as run:
    import jax
    import jax.numpy as jnp
    found = jax.jit(lambda x: jnp.tanh(x) @ x.T)(jnp.ones((8, 8)))
    run.capture()
    (effect,) = run.effects()
jax.jit(lambda x: x * 3 + 1)(jnp.ones((9, 9))).block_until_ready()  # into no folder any more
print(json.dumps({
    "sum": float(found.sum()), "restored": effect.restored, "files": effect.files,
    "hits": effect.counters.hits, "misses": effect.counters.misses,
}))
"""


LEAVES = """
import sys
import jax
from jax._src import monitoring
from trivet import Cache
from trivet.plans.folders import guarded

def there():
    return len(monitoring.get_event_listeners()), len(monitoring.get_event_duration_listeners())

events, durations = there()
with Cache.open(sys.argv[1]) as cache:
    for _ in range(10):
        with guarded(cache, "cuda"):
            assert there() == (events + 1, durations + 1)
        assert there() == (events, durations)
    with guarded(cache, "cuda"):
        monitoring.clear_event_listeners()  # a program may do so
print("{}")
"""


def run(cache: Path, program: str = PROGRAM) -> dict[str, Any]:
    environment = {name: each for name, each in os.environ.items() if not name.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", program, str(cache)],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Error writing" not in done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = run(tmp_path / "cache"), run(tmp_path / "cache")
    assert (first["restored"], first["hits"]) == ("empty", 0)
    assert first["misses"] > 0
    assert (second["restored"], second["hits"], second["misses"]) == ("hit", first["misses"], 0)
    assert second["sum"] == first["sum"]


def test_jax_tells_nobody_any_more_after_each_guard(tmp_path: Path) -> None:
    assert run(tmp_path / "cache", LEAVES) == {}
