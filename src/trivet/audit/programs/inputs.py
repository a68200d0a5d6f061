"""The input that every program of the audit gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def ramp(shape: Sequence[Any]) -> Any:
    """Numbers from -1 to 1."""
    import numpy as np

    sizes = [int(each) for each in shape]
    return np.linspace(-1, 1, int(np.prod(sizes)), dtype=np.float32).reshape(sizes)
