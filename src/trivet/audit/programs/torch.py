"""Small programs under ``torch.compile``, with Inductor's own cache and its own counters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_ROWS, _COLUMNS = 8, 97
SCALE = 1.5  # of which Inductor writes the digits into its code


def answer() -> Any:
    """A compiled function, beside what PyTorch gives without a compiler."""
    import torch

    def function(x: Any) -> Any:
        return torch.softmax(x * 3, -1) + (x * SCALE).sin()

    return _run(function, torch.linspace(-1, 1, _ROWS * _COLUMNS).reshape(_ROWS, _COLUMNS))


def custom_operator(operators: str) -> Any:
    """The same with a custom operator from the file ``operators``."""
    import importlib

    import torch

    sys.path.insert(0, str(Path(operators).parent))
    module = importlib.import_module(Path(operators).stem)
    return _run(lambda x: module.scale(x) + 1, torch.arange(_COLUMNS, dtype=torch.float32))


def capability() -> Any:
    """The instruction set that PyTorch's kernels use here."""
    import torch

    return {"capability": torch.backends.cpu.get_cpu_capability()}


def _run(function: Any, x: Any) -> Any:
    import torch
    from torch._dynamo.utils import counters

    compiled: Any = torch.compile(function)
    with torch.no_grad():
        right, y = function(x), compiled(x)
    counted = counters["inductor"]
    return {
        "y": y.double().flatten().tolist(),
        "right": right.double().flatten().tolist(),
        "hits": counted["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"],
        "misses": counted["fxgraph_cache_miss"],
    }
