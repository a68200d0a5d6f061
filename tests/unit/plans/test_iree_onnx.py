"""Models on their way into IREE's importer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from trivet.plans.backends import iree_onnx


class Weight:
    """An initialiser whose bytes are copied whenever somebody looks, as protobuf's are."""

    EXTERNAL = 1
    data_location = 0

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.copies = 0

    @property
    def raw_data(self) -> bytes:
        self.copies += 1
        return self._data

    def ClearField(self, name: str) -> None:  # noqa: N802
        setattr(self, f"_{name.removeprefix('raw_')}", b"")


def test_large_weights_are_copied_once() -> None:
    small, large = Weight(b"ab"), Weight(bytes(iree_onnx._LARGE + 1))
    graph: Any = SimpleNamespace(initializer=[small, large])
    taken = dict(iree_onnx._take_large(graph))
    assert {index: len(data) for index, data in taken.items()} == {1: iree_onnx._LARGE + 1}
    assert (small.copies, large.copies) == (1, 1)
    assert (large.raw_data, large.data_location) == (b"", Weight.EXTERNAL)
