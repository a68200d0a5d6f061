"""What frameworks' caches did in this process; a part of `trivet_exec_hook`."""

from __future__ import annotations

import sys


class Counters:
    """Counts from when it is made. A process that was forked has its parent's counts in its memory.

    Attributes:
        jax: told by JAX itself, event by event.
    """

    def __init__(self) -> None:
        self.jax: dict[str, float] = {}
        self._torch, self._vllm = _torch(), _vllm()

    def add_jax(self, event: str, amount: float) -> None:
        """One of JAX's events, such as ``/jax/compilation_cache/cache_misses``."""
        name = event.rpartition("/")[2]
        self.jax[name] = self.jax.get(name, 0) + amount

    def torch(self) -> dict[str, float]:
        """What PyTorch's caches counted."""
        return _since(self._torch, _torch())

    def vllm(self) -> dict[str, float]:
        """What vLLM loaded from its own cache, and what it compiled all the same."""
        found = _since(self._vllm, _vllm())
        return found if any(found.values()) else {}


def _since(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    """What was added; all of it where the program has set its framework's counters back."""
    added = {name: each - before.get(name, 0) for name, each in now.items()}
    return {name: now[name] if each < 0 else each for name, each in added.items()}


def _torch() -> dict[str, float]:
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    if counters is None:  # not imported, or only a part of it yet
        return {}
    counted = {
        name: int(counters[group][name])
        for group, prefix in (("inductor", "fxgraph_cache_"), ("aot_autograd", "autograd_cache_"))
        for name in (prefix + "hit", prefix + "miss", prefix + "bypass")
    }
    metrics = getattr(utils, "compilation_time_metrics", {})
    seconds = metrics.get("compile_fx_inner") or ()
    return {**counted, "compile_seconds": float(sum(seconds))}


def _vllm() -> dict[str, float]:
    module = sys.modules.get("vllm.compilation.counter")
    counter = getattr(module, "compilation_counter", None)
    names = ("num_aot_artifacts_loaded", "num_compiled_artifacts_loaded", "num_aot_compiles",
             "num_inductor_compiles")  # fmt: skip
    return {name: int(getattr(counter, name, 0)) for name in names}
