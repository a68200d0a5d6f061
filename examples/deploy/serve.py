"""A service whose plans come from a layer: /opt/plans is what `Dockerfile` makes."""

from __future__ import annotations

import logging
import os

import numpy as np

from trivet import Cache
from trivet.plans import Plans, Shapes
from trivet.plans.backends import OnnxRuntime


def main() -> None:
    """Load the plan, and answer once."""
    logging.basicConfig(level=logging.INFO)
    cache = Cache.open(layers=[os.environ.get("PLANS", "/opt/plans")])
    plans = Plans(cache, OnnxRuntime())
    plan = plans.load("net.onnx", Shapes("x=N{1,8}x16"))
    print(plan.run({"x": np.ones((1, 16), np.float32)}))
    print("from", plan.loaded.source)


if __name__ == "__main__":
    main()
