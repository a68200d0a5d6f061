"""One answer of a process that serves a PyTorch program, as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from trivet.cache import Cache
from trivet.plans.backends import Torch
from trivet.plans.plans import Plans


def answer(folder: str, model: str, custom_ops: list[str], size: int) -> dict[str, Any]:
    """Load the plan of ``model`` from the cache in ``folder`` and run it once."""
    with Cache.open(folder) as cache:
        plan = Plans(cache, Torch(threads=2, custom_ops=custom_ops)).load(model)
        name = plan.inputs[0].name
        x = np.linspace(-1, 1, size * 16, dtype=np.float32).reshape(size, 16)
        outputs = plan.run({name: x})
        return {
            "source": plan.source,
            "reason": plan.loaded.reason + plan.loaded.error,
            "outputs": {key: value.tolist() for key, value in outputs.items()},
            "key": plan.loaded.key.digest.hex(),
            "imported": sorted(
                {".".join(each.split(".")[:2]) for each in sys.modules if each.startswith("torch.")}
            ),
        }


if __name__ == "__main__":
    print(json.dumps(answer(sys.argv[1], sys.argv[2], sys.argv[4:], int(sys.argv[3]))))
