"""What a model file computes: identity of ONNX and OpenVINO IR graphs by content."""

from trivet.plans.graph.identity import identify, unchanged
from trivet.plans.graph.memo import GraphMemo

__all__ = ["GraphMemo", "identify", "unchanged"]
