"""Small programs, exported by ``jax.export``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np


def export(function: Callable[..., Any], path: Path, *args: Any, **kwargs: Any) -> Path:
    """Export ``function`` for arrays, or descriptions of arrays, like these; returns ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with jax.enable_x64(True):
        exported = jax.export.export(jax.jit(function), platforms=["cpu"])(*args, **kwargs)
    path.write_bytes(exported.serialize())
    return path


def like(*shape: Any, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def weights(width: int = 16, seed: int = 0) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    return random.standard_normal((width, width)).astype(np.float32)


def dense(path: Path, width: int = 16, *, batch: int = 4, seed: int = 0) -> Path:
    """``tanh(x @ w)`` with the weights inside: ``arg0`` (batch, width) to ``out``."""
    w = weights(width, seed)
    return export(lambda x: jnp.tanh(x @ w), path, like(batch, width))


def free(path: Path, width: int = 16) -> Path:
    """`dense` with a free first axis ``b``."""
    w = weights(width)
    (b,) = jax.export.symbolic_shape("b")
    return export(lambda x: jnp.tanh(x @ w), path, like(b, width))


def nested(path: Path) -> Path:
    """Weights among the arguments, arguments by keyword, one that is not used, nested results."""

    def function(params: Any, x: Any, unused: Any, *, scale: Any) -> Any:
        h = x @ params["layers"][0]["w"] + params["b"]
        return {"logits": h * scale, "more": (h.sum(), h.argmax(axis=1))}

    params = {"b": like(8), "layers": [{"w": like(4, 8)}]}
    return export(function, path, params, like(2, 4), like(3), scale=like())
