"""Builders of two well-known networks as ONNX files, with random weights.

A download would tie the examples, tests and benchmarks to a network and to a licence; these files
cost seconds, have the true architecture and size, and are the same bytes for the same seed.
Weights are written one at a time, so that building a model takes little memory.

    python -m examples.models resnet50 resnet50.onnx

    resnet50("resnet50.onnx")      102 MB   x [N, 3, 224, 224]            -> logits [N, 1000]
    bert_base("bert.onnx")         438 MB   input_ids, attention_mask [batch, sequence]
                                            -> last_hidden_state, pooler_output
    swap_weights("resnet50.onnx")           other weights; size and mtime stay
"""

from __future__ import annotations

import argparse
import math
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

OPSET = 17
_IR_VERSION = 9
_SMALLEST_FLOAT32 = float(np.finfo(np.float32).min)


class _Weight(NamedTuple):
    name: str
    shape: tuple[int, ...]
    mean: float
    deviation: float


class _Graph:
    """Nodes, weights that are drawn when they are written, and small integer constants."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[_Weight] = []
        self.constants: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, out: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [out], name=f"/{out}", **attributes))
        return out

    def normal(self, name: str, *shape: int, mean: float = 0.0, deviation: float) -> str:
        self.weights.append(_Weight(name, shape, mean, deviation))
        return name

    def integers(self, name: str, values: Sequence[int], *, scalar: bool = False) -> str:
        shape = [] if scalar else [len(values)]
        return self._constant(helper.make_tensor(name, TensorProto.INT64, shape, list(values)))

    def scalar(self, name: str, value: float) -> str:
        return self._constant(helper.make_tensor(name, TensorProto.FLOAT, [], [value]))

    def _constant(self, tensor: onnx.TensorProto) -> str:
        if all(tensor.name != each.name for each in self.constants):
            self.constants.append(tensor)
        return tensor.name


def resnet50(
    path: str | Path,
    seed: int = 0,
    *,
    blocks: Sequence[int] = (3, 4, 6, 3),
    width: int = 64,
    classes: int = 1000,
) -> Path:
    """ResNet-50 (He et al. 2015, v1: stride in the 3x3 convolution), BatchNormalization as nodes.

    Input ``x`` float32 [N, 3, 224, 224] (any height and width from 32 work), output ``logits``
    [N, classes]. ``blocks`` and ``width`` make smaller relatives: ``blocks=(1, 1, 1, 1), width=16``
    has 4 MB.
    """
    graph = _Graph()
    x = _convolve(graph, "x", "stem", 3, width, kernel=7, stride=2)
    x = graph.node(
        "MaxPool", x, out="stem/pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    channels = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        for block in range(count):
            stride = 2 if block == 0 and stage > 0 else 1
            x = _bottleneck(graph, x, f"layer{stage + 1}.{block}", channels, inner, stride)
            channels = 4 * inner
    x = graph.node("GlobalAveragePool", x, out="pool")
    x = graph.node("Flatten", x, out="flat", axis=1)
    weight = graph.normal("fc.weight", classes, channels, deviation=1 / math.sqrt(channels))
    bias = graph.normal("fc.bias", classes, deviation=0.01)
    graph.node("Gemm", x, weight, bias, out="logits", transB=1)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 224, 224])]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", classes])]
    return _write(Path(path), "resnet50", graph, inputs, outputs, seed, external=False)


def _convolve(
    graph: _Graph,
    x: str,
    name: str,
    channels: int,
    filters: int,
    *,
    kernel: int,
    stride: int = 1,
    gain: float = 1.0,
    relu: bool = True,
) -> str:
    fan_in = channels * kernel * kernel
    deviation = math.sqrt(2 / fan_in)  # He initialisation: activations keep their scale
    weight = graph.normal(f"{name}.conv", filters, channels, kernel, kernel, deviation=deviation)
    pad = kernel // 2
    x = graph.node(
        "Conv",
        x,
        weight,
        out=f"{name}/conv",
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[pad] * 4,
    )
    statistics = [
        graph.normal(f"{name}.bn.weight", filters, mean=gain, deviation=0.05 * gain),
        graph.normal(f"{name}.bn.bias", filters, deviation=0.05),
        graph.normal(f"{name}.bn.mean", filters, deviation=0.05),
        graph.normal(f"{name}.bn.var", filters, mean=1.0, deviation=0.02),
    ]
    x = graph.node("BatchNormalization", x, *statistics, out=f"{name}/bn", epsilon=1e-5)
    return graph.node("Relu", x, out=f"{name}/relu") if relu else x


def _bottleneck(graph: _Graph, x: str, name: str, channels: int, inner: int, stride: int) -> str:
    y = _convolve(graph, x, f"{name}.1", channels, inner, kernel=1)
    y = _convolve(graph, y, f"{name}.2", inner, inner, kernel=3, stride=stride)
    # A small gain on the branch, or sixteen residual sums would blow the scale up.
    y = _convolve(graph, y, f"{name}.3", inner, 4 * inner, kernel=1, gain=0.3, relu=False)
    if channels != 4 * inner:
        x = _convolve(
            graph, x, f"{name}.down", channels, 4 * inner, kernel=1, stride=stride, relu=False
        )
    x = graph.node("Add", y, x, out=f"{name}/add")
    return graph.node("Relu", x, out=f"{name}/out")


def bert_base(
    path: str | Path,
    seed: int = 0,
    *,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    vocabulary: int = 30522,
    positions: int = 512,
    external: bool = False,
) -> Path:
    """BERT-base encoder (Devlin et al. 2018), written the way PyTorch's exporter writes it.

    Inputs ``input_ids`` and ``attention_mask``, int64 [batch, sequence], sequence up to
    ``positions``; outputs ``last_hidden_state`` [batch, sequence, hidden] and ``pooler_output``
    [batch, hidden]. ``layers=2, hidden=64, heads=2, vocabulary=1000`` has under 1 MB. With
    ``external`` the weights lie in ``<path>.data``, which is how models over 2 GB are kept.
    """
    if hidden % heads:
        raise ValueError(f"hidden ({hidden}) must be a multiple of heads ({heads})")
    graph = _Graph()
    x = _embed(graph, hidden, vocabulary, positions)
    mask = _additive_mask(graph)
    for layer in range(layers):
        x = _encoder_layer(graph, x, mask, f"encoder.{layer}", hidden, heads)
    graph.node("Identity", x, out="last_hidden_state")
    first = graph.node("Gather", x, graph.integers("zero", [0], scalar=True), out="first", axis=1)
    weight = graph.normal("pooler.weight", hidden, hidden, deviation=1 / math.sqrt(hidden))
    bias = graph.normal("pooler.bias", hidden, deviation=0.01)
    pooled = graph.node("Gemm", first, weight, bias, out="pooler/gemm", transB=1)
    graph.node("Tanh", pooled, out="pooler_output")
    axes = ["batch", "sequence"]
    info = helper.make_tensor_value_info
    inputs = [info(name, TensorProto.INT64, axes) for name in ("input_ids", "attention_mask")]
    outputs = [
        info("last_hidden_state", TensorProto.FLOAT, [*axes, hidden]),
        info("pooler_output", TensorProto.FLOAT, ["batch", hidden]),
    ]
    return _write(Path(path), "bert_base", graph, inputs, outputs, seed, external=external)


def _embed(graph: _Graph, hidden: int, vocabulary: int, positions: int) -> str:
    words = graph.normal("embeddings.word", vocabulary, hidden, deviation=0.5)
    places = graph.normal("embeddings.position", positions, hidden, deviation=0.2)
    kinds = graph.normal("embeddings.token_type", 2, hidden, deviation=0.2)
    zero, one = graph.integers("zero", [0], scalar=True), graph.integers("one", [1], scalar=True)
    shape = graph.node("Shape", "input_ids", out="ids/shape")
    length = graph.node("Gather", shape, one, out="ids/length", axis=0)
    steps = graph.node("Range", zero, length, one, out="ids/positions")
    zeros = graph.node(
        "ConstantOfShape",
        shape,
        out="ids/token_types",
        value=helper.make_tensor("value", TensorProto.INT64, [1], [0]),
    )
    x = graph.node("Gather", words, "input_ids", out="embeddings/words")
    x = graph.node(
        "Add", x, graph.node("Gather", kinds, zeros, out="embeddings/kinds"), out="embeddings/add"
    )
    x = graph.node(
        "Add", x, graph.node("Gather", places, steps, out="embeddings/places"), out="embeddings/sum"
    )
    return _normalise(graph, x, "embeddings.norm", hidden)


def _additive_mask(graph: _Graph) -> str:
    """0 where the mask is 1, the smallest float where it is 0; [batch, 1, 1, sequence]."""
    x = graph.node(
        "Unsqueeze", "attention_mask", graph.integers("mask_axes", [1, 2]), out="mask/4d"
    )
    x = graph.node("Cast", x, out="mask/float", to=TensorProto.FLOAT)
    x = graph.node("Sub", graph.scalar("one_f", 1.0), x, out="mask/inverted")
    return graph.node("Mul", x, graph.scalar("smallest", _SMALLEST_FLOAT32), out="mask/additive")


def _encoder_layer(graph: _Graph, x: str, mask: str, name: str, hidden: int, heads: int) -> str:
    size = hidden // heads
    split = graph.integers("split_heads", [0, 0, heads, size])
    merge = graph.integers("merge_heads", [0, 0, hidden])

    def head(kind: str, order: list[int]) -> str:
        y = _linear(graph, x, f"{name}.{kind}", hidden, hidden)
        y = graph.node("Reshape", y, split, out=f"{name}/{kind}/split")
        return graph.node("Transpose", y, out=f"{name}/{kind}/heads", perm=order)

    query = head("query", [0, 2, 1, 3])
    key = head("key", [0, 2, 3, 1])
    value = head("value", [0, 2, 1, 3])
    scores = graph.node("MatMul", query, key, out=f"{name}/scores")
    scores = graph.node(
        "Div", scores, graph.scalar("root", math.sqrt(size)), out=f"{name}/scores/scaled"
    )
    scores = graph.node("Add", scores, mask, out=f"{name}/scores/masked")
    weights = graph.node("Softmax", scores, out=f"{name}/softmax", axis=-1)
    y = graph.node("MatMul", weights, value, out=f"{name}/context")
    y = graph.node("Transpose", y, out=f"{name}/context/transposed", perm=[0, 2, 1, 3])
    y = graph.node("Reshape", y, merge, out=f"{name}/context/merged")
    y = _linear(graph, y, f"{name}.attention", hidden, hidden)
    y = graph.node("Add", y, x, out=f"{name}/attention/residual")
    x = _normalise(graph, y, f"{name}.attention.norm", hidden)
    y = _linear(graph, x, f"{name}.intermediate", hidden, 4 * hidden)
    y = _gelu(graph, y, f"{name}/gelu")
    y = _linear(graph, y, f"{name}.output", 4 * hidden, hidden)
    y = graph.node("Add", y, x, out=f"{name}/output/residual")
    return _normalise(graph, y, f"{name}.output.norm", hidden)


def _linear(graph: _Graph, x: str, name: str, inner: int, outer: int) -> str:
    weight = graph.normal(f"{name}.weight", inner, outer, deviation=1 / math.sqrt(inner))
    bias = graph.normal(f"{name}.bias", outer, deviation=0.01)
    y = graph.node("MatMul", x, weight, out=f"{name}/matmul")
    return graph.node("Add", bias, y, out=f"{name}/add")


def _gelu(graph: _Graph, x: str, name: str) -> str:
    y = graph.node("Div", x, graph.scalar("root_2", math.sqrt(2)), out=f"{name}/div")
    y = graph.node("Erf", y, out=f"{name}/erf")
    y = graph.node("Add", y, graph.scalar("one_f", 1.0), out=f"{name}/add")
    y = graph.node("Mul", x, y, out=f"{name}/mul")
    return graph.node("Mul", y, graph.scalar("half", 0.5), out=f"{name}/half")


def _normalise(graph: _Graph, x: str, name: str, hidden: int) -> str:
    scale = graph.normal(f"{name}.weight", hidden, mean=1.0, deviation=0.02)
    bias = graph.normal(f"{name}.bias", hidden, deviation=0.02)
    return graph.node(
        "LayerNormalization", x, scale, bias, out=f"{name}/out", axis=-1, epsilon=1e-12
    )


# A model of 438 MB built with the onnx package exists three times in memory: as arrays, as a
# message and as bytes. So the message is made without its weights, and they are written behind it,
# one at a time, as the protobuf fields that they are.
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9
_LENGTH_DELIMITED = 2


def _write(
    path: Path,
    name: str,
    graph: _Graph,
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    seed: int,
    *,
    external: bool,
) -> Path:
    body = helper.make_graph(graph.nodes, name, inputs, outputs, graph.constants)
    model = helper.make_model_gen_version(
        onnx.GraphProto(), opset_imports=[helper.make_opsetid("", OPSET)]
    )
    model.ClearField("graph")
    model.ir_version = _IR_VERSION
    model.producer_name = "trivet-examples"
    front = body.SerializeToString(deterministic=True)
    data_name = f"{path.name}.data" if external else None
    heads = list(_initializer_heads(graph.weights, data_name))
    size = len(front) + sum(_initializer_size(head, data) for head, data in heads)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    with partial.open("wb") as file:
        file.write(model.SerializeToString(deterministic=True))
        file.write(_tag(_MODEL_GRAPH) + _varint(size) + front)
        if data_name is None:
            _write_weights(file, graph.weights, heads, seed)
        else:
            for head, _ in heads:
                file.write(_tag(_GRAPH_INITIALIZER) + _varint(len(head)) + head)
    if data_name is not None:
        data_partial = path.with_name(f"{data_name}.{os.getpid()}.part")
        with data_partial.open("wb") as file:
            for index, weight in enumerate(graph.weights):
                file.write(_draw(weight, seed, index))
        data_partial.replace(path.with_name(data_name))
    partial.replace(path)
    return path


def _initializer_heads(
    weights: Iterable[_Weight], data_name: str | None
) -> Iterator[tuple[bytes, int]]:
    """Each weight's message without its bytes, and how many bytes will follow inside it."""
    offset = 0
    for weight in weights:
        length = 4 * math.prod(weight.shape)
        tensor = TensorProto(data_type=TensorProto.FLOAT, dims=weight.shape, name=weight.name)
        if data_name is None:
            head = tensor.SerializeToString() + _tag(_TENSOR_RAW_DATA) + _varint(length)
            yield head, length
        else:
            tensor.data_location = TensorProto.EXTERNAL
            place = {"location": data_name, "offset": str(offset), "length": str(length)}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=value)
            yield tensor.SerializeToString(), 0
            offset += length


def _initializer_size(head: bytes, data: int) -> int:
    length = len(head) + data
    return len(_tag(_GRAPH_INITIALIZER)) + len(_varint(length)) + length


def _write_weights(
    file: IO[bytes], weights: Sequence[_Weight], heads: Sequence[tuple[bytes, int]], seed: int
) -> None:
    for index, (weight, (head, data)) in enumerate(zip(weights, heads, strict=True)):
        file.write(_tag(_GRAPH_INITIALIZER) + _varint(len(head) + data) + head)
        file.write(_draw(weight, seed, index))


def _draw(weight: _Weight, seed: int, index: int) -> bytes:
    values = np.random.default_rng([seed, index]).standard_normal(weight.shape, np.float32)
    values *= np.float32(weight.deviation)
    values += np.float32(weight.mean)
    return values.astype("<f4", copy=False).tobytes()


def _tag(field: int) -> bytes:
    return _varint(field << 3 | _LENGTH_DELIMITED)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def swap_weights(path: str | Path, seed: int = 1) -> int:
    """Replace the weights of an ONNX file by others of the same scale; returns how many tensors.

    Size and mtime stay what they were, as after ``rsync -t``, ``tar -x`` or an image build with a
    fixed ``SOURCE_DATE_EPOCH``: what a cache keyed by path, size and mtime can't see. The file is
    replaced by a rename. Every float32 matrix or kernel is rotated, so the model stays finite.
    External data is not touched. Raises ValueError when the file has no such weights.
    """
    path = Path(path)
    before = path.stat()
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    shutil.copyfile(path, partial)
    swapped = 0
    with partial.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        position = 0
        for raw in _kernels(onnx.load(path, load_external_data=False)):
            at = view.find(raw, position)
            at = at if at >= 0 else view.find(raw)
            values = np.frombuffer(raw, "<f4")
            shift = int(np.random.default_rng([seed, swapped]).integers(1, values.size))
            view[at : at + len(raw)] = np.roll(values, shift).tobytes()
            position = at + len(raw)
            swapped += 1
    if not swapped:
        partial.unlink()
        raise ValueError(f"{path} has no float32 weights inside the file")
    os.utime(partial, ns=(before.st_atime_ns, before.st_mtime_ns))
    partial.replace(path)
    return swapped


def _kernels(model: onnx.ModelProto) -> Iterator[bytes]:
    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        tensors += [each.t for each in node.attribute if each.type == onnx.AttributeProto.TENSOR]
    for tensor in tensors:
        wanted = tensor.data_type == TensorProto.FLOAT and len(tensor.dims) >= 2
        if wanted and len(tensor.raw_data) >= 256:
            yield tensor.raw_data


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build a model file with random weights.")
    parser.add_argument("model", choices=["resnet50", "bert_base"])
    parser.add_argument("path")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    build = resnet50 if given.model == "resnet50" else bert_base
    build(given.path, given.seed)
