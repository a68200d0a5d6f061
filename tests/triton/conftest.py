"""What the tests of Triton's kernels share. Cubins are real, and nothing is launched."""

from __future__ import annotations

import importlib.util

import pytest

if importlib.util.find_spec("triton") is None:
    raise pytest.UsageError("the tests in tests/triton need Triton: pip install 'trivet[triton]'")
