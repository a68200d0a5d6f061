"""What the tests of the PyTorch backend share. They compile with g++, which takes minutes."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    raise pytest.UsageError("the tests in tests/torch need PyTorch: pip install 'trivet[torch]'")
if shutil.which("g++") is None:
    raise pytest.UsageError("the tests in tests/torch need a C++ compiler: g++")

# Both are in the keys. The wrapper around the kernels compiles in half the time without
# optimisation, and whether the compiler knows an instruction set is not tried out first.
os.environ["AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL"] = "O0"
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PyTorch warns about itself while it exports and loads programs."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
