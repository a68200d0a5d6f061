"""What kernels of `tests.support.triton_kernels` take from another module."""

from __future__ import annotations

import triton.language as tl

SCALE = tl.constexpr(2)
KIND = tl.float32
NUMBER = 1


@tl.core.builtin
def shifted(x, _semantic=None):  # type: ignore[no-untyped-def]
    return _semantic.add(x, _semantic.to_tensor(1), True)
