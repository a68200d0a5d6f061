"""Small ONNX models, built with the ``onnx`` package; deterministic for the same arguments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 10


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
    **kwargs: Any,
) -> onnx.ModelProto:
    """A model from its parts; ``weights`` become initialisers in raw form."""
    graph = helper.make_graph(
        nodes,
        "graph",
        inputs,
        outputs,
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    imports = kwargs.pop("opset_imports", [helper.make_opsetid("", OPSET)])
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION, **kwargs)


def tensor(name: str, shape: list[int | str | None], dtype: int = TensorProto.FLOAT) -> Any:
    """A value info."""
    return helper.make_tensor_value_info(name, dtype, shape)


def mlp(
    width: int = 16, layers: int = 2, *, batch: int | str = 4, seed: int = 0
) -> onnx.ModelProto:
    """``layers`` dense layers with ReLU: ``x`` (batch, width) to ``y`` (batch, width)."""
    random = np.random.default_rng(seed)
    nodes, weights, last = [], {}, "x"
    for i in range(layers):
        weights[f"w{i}"] = (random.standard_normal((width, width)) / width**0.5).astype(np.float32)
        weights[f"b{i}"] = random.standard_normal(width).astype(np.float32)
        out = "y" if i == layers - 1 else f"h{i}"
        nodes += [
            helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"g{i}"], name=f"gemm{i}"),
            helper.make_node("Relu", [f"g{i}"], [out], name=f"relu{i}"),
        ]
        last = out
    return model(nodes, [tensor("x", [batch, width])], [tensor("y", [batch, width])], weights)


def dynamic_batch(width: int = 16, *, seed: int = 0) -> onnx.ModelProto:
    """`mlp` with a free first dimension ``N``."""
    return mlp(width, batch="N", seed=seed)


def conv_net(
    channels: int = 16, size: int = 32, *, batch: int | str = 1, classes: int = 10, seed: int = 0
) -> onnx.ModelProto:
    """Two convolutions, pooling, a dense layer: ``x`` (batch, 3, size, size) to ``y``."""
    random = np.random.default_rng(seed)

    def weight(*shape: int) -> np.ndarray[Any, Any]:
        scale = float(np.prod(shape[1:]) or 1) ** 0.5
        return (random.standard_normal(shape) / scale).astype(np.float32)

    weights = {
        "k0": weight(channels, 3, 3, 3),
        "c0": weight(channels),
        "k1": weight(channels, channels, 3, 3),
        "c1": weight(channels),
        "w": weight(classes, channels),
        "b": weight(classes),
    }
    pads = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["x", "k0", "c0"], ["h0"], kernel_shape=[3, 3], pads=pads),
        helper.make_node("Relu", ["h0"], ["r0"]),
        helper.make_node("Conv", ["r0", "k1", "c1"], ["h1"], kernel_shape=[3, 3], pads=pads),
        helper.make_node("Relu", ["h1"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"], axis=1),
        helper.make_node("Gemm", ["f", "w", "b"], ["y"], transB=1),
    ]
    return model(
        nodes, [tensor("x", [batch, 3, size, size])], [tensor("y", [batch, classes])], weights
    )


def with_if(*, then_out: str = "then_y", else_out: str = "else_y") -> onnx.ModelProto:
    """``y = x + w if c else x * w``: branches that capture ``x`` and ``w`` from outside."""
    then_branch = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], [then_out])], "then", [], [tensor(then_out, [4])]
    )
    else_branch = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], [else_out])], "else", [], [tensor(else_out, [4])]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=then_branch, else_branch=else_branch)
    return model(
        [node],
        [tensor("c", [], TensorProto.BOOL), tensor("x", [4])],
        [tensor("y", [4])],
        {"w": np.arange(4, dtype=np.float32)},
    )


def every_kind() -> onnx.ModelProto:
    """A model with every kind of field that ONNX has; well-formed, but no runtime could run it."""
    inner = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["inner"])], "body", [], [tensor("inner", [4])]
    )
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("sparse_w", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("sparse_i", TensorProto.INT64, [2], [1, 3]),
        [8],
    )
    values = {
        "a_float": 1.5,
        "a_floats": [1.0, 2.0],
        "a_int": 3,
        "a_ints": [1, 300, -5],
        "a_string": "text",
        "a_strings": ["one", "two"],
        "a_tensor": helper.make_tensor("t", TensorProto.FLOAT, [2], [1.0, 2.0]),
        "a_tensors": [helper.make_tensor("t", TensorProto.INT32, [2], [1, 2])],
        "a_graph": inner,
        "a_graphs": [inner],
        "a_sparse": sparse,
        "a_sparses": [sparse],
        "a_type": helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 2]),
        "a_types": [helper.make_tensor_type_proto(TensorProto.INT8, [3])],
    }
    nodes = [
        helper.make_node("Gather", ["w", "x"], ["g"], name="first", axis=0),
        helper.make_node("Custom", ["g", "", "v"], ["h"], domain="my.ops", **values),
        helper.make_node("Twice", ["h", "sparse_w"], ["y"], domain="my.functions"),
    ]
    function = helper.make_function(
        "my.functions",
        "Twice",
        ["p", "q"],
        ["r"],
        [
            helper.make_node("Add", ["p", "q"], ["s"], name="in_function"),
            helper.make_node("Scale", ["s"], ["r"], domain="my.ops"),
        ],
        [helper.make_opsetid("", OPSET)],
        attributes=["alpha"],
        attribute_protos=[helper.make_attribute("beta", 2.0)],
    )
    scaled = function.node[1].attribute.add(name="by", type=onnx.AttributeProto.FLOAT)
    scaled.ref_attr_name = "alpha"
    proto = model(
        nodes,
        [tensor("x", ["N"], TensorProto.INT64), tensor("v", [4])],
        [tensor("y", [None, 4]), tensor("h", ["M", 4])],
        {
            "w": np.arange(400, dtype=np.float32).reshape(100, 4),
            "v": np.ones(4, np.float32),
            "unused": np.zeros(3, np.float32),
        },
        functions=[function],
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("my.ops", 2)],
        producer_name="tests",
        doc_string="documentation",
    )
    proto.graph.sparse_initializer.append(sparse)
    proto.graph.value_info.append(tensor("g", ["N", 4]))
    annotation = proto.graph.quantization_annotation.add(tensor_name="g")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="v")
    return proto


def save(proto: onnx.ModelProto, path: Path) -> Path:
    """Write a model, all in one file; returns ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(proto.SerializeToString(deterministic=True))
    return path


def external_data(
    folder: Path,
    proto: onnx.ModelProto | None = None,
    *,
    name: str = "model.onnx",
    location: str = "weights.bin",
) -> Path:
    """Write a model (by default `mlp`) whose initialisers lie in another file of ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / location).unlink(missing_ok=True)
    copy = onnx.ModelProto()
    copy.CopyFrom(mlp() if proto is None else proto)
    path = folder / name
    onnx.save_model(
        copy,
        str(path),
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=location,
        size_threshold=0,
    )
    return path


def varint(value: int) -> bytes:
    """A number in the protobuf wire format."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, body: bytes) -> bytes:
    """A field that holds bytes, in the protobuf wire format."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def let_time_pass(file: Path) -> None:
    """Return when the file system's clock has moved on since ``file`` changed last."""
    probe = file.with_name("probe")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        probe.touch()
        if probe.stat().st_ctime_ns > file.stat().st_ctime_ns:
            probe.unlink()
            return
    raise AssertionError("the file system's clock stands still")
