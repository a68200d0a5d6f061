"""A small JAX program with JAX's persistent cache, and with serialised executables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trivet.audit.programs.inputs import ramp
from trivet.audit.programs.together import meet

_SHAPE = (4, 16)


def answer(together: str = "", count: int = 1) -> Any:
    """Run a compiled function once; with the persistent cache's own counters."""
    import jax

    counted = {"cache_hits": 0, "cache_misses": 0}

    def listen(event: str, **_: Any) -> None:
        last = event.rpartition("/")[2]
        if last in counted:
            counted[last] += 1

    jax.monitoring.register_event_listener(listen)
    if together:
        meet(together, count)
    y = jax.jit(_function)(ramp(_SHAPE)).ravel().tolist()
    return {"y": y, "hits": counted["cache_hits"], "misses": counted["cache_misses"]}


def plain() -> Any:
    """Without a cache."""
    import jax

    return {"y": jax.jit(_function)(ramp(_SHAPE)).ravel().tolist()}


def serialize(path: str) -> Any:
    """Write the serialised executable to ``path``."""
    import jax
    from jax.experimental import serialize_executable

    compiled = jax.jit(_function).lower(ramp(_SHAPE)).compile()
    payload, _, _ = serialize_executable.serialize(compiled)
    Path(path).write_bytes(payload)
    return {"size": len(payload)}


def deserialize(path: str) -> Any:
    """Load what `serialize` wrote, and run it."""
    import jax
    from jax.experimental import serialize_executable

    x = ramp(_SHAPE)
    given, out = jax.tree.structure(((x,), {})), jax.tree.structure(x)
    load = serialize_executable.deserialize_and_load
    compiled = load(Path(path).read_bytes(), given, out)
    return {"y": compiled(x).ravel().tolist(), "hit": True}


def export(path: str) -> Any:
    """Write the program as ``jax.export`` does."""
    import jax
    import jax.export

    exported = jax.export.export(jax.jit(_function), platforms=["cpu"])(ramp(_SHAPE))
    Path(path).write_bytes(exported.serialize())
    return {"path": path}


def _function(x: Any) -> Any:
    import jax.numpy as jnp

    weights = jnp.asarray(ramp((16, 16)))
    return jnp.tanh(x @ weights).astype(jnp.float32)
