"""Identity of an ONNX model, read from the file without the ``onnx`` package."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from trivet.errors import ModelError
from trivet.plans.graph.files import Files
from trivet.plans.graph.onnx_graph import (
    ATTRIBUTE_NAME,
    DOMAIN,
    INPUT,
    NAME,
    OUTPUT,
    OVERLOAD,
    GraphWalker,
    pairs,
)
from trivet.plans.graph.onnx_types import tensor_info
from trivet.plans.graph.tensors import put_unknown
from trivet.plans.graph.tokens import Tokens
from trivet.plans.graph.wire import BYTES, VARINT, Field, fail, fields, tag
from trivet.plans.model import GraphId, TensorInfo

_IR_VERSION, _OPSET, _GRAPH = tag(1, VARINT), tag(8, BYTES), tag(7, BYTES)
_TRAINING, _FUNCTION = tag(20, BYTES), tag(25, BYTES)
_NEUTRAL = {tag(2, BYTES), tag(3, BYTES), tag(4, BYTES), tag(5, VARINT), tag(6, BYTES)}
_NEUTRAL.add(tag(14, BYTES))
_FUNCTIONS, _NAMES = 101, 102  # labels beside the tags of the model's fields


class _Model(NamedTuple):
    """Where the parts of a model are, as ranges of the file."""

    graph: tuple[int, int]
    functions: array[int]
    training: array[int]
    unknown: list[Field]


def identify_onnx(files: Files) -> GraphId:
    """Identity of the ONNX model that is the main file; see `GraphId` for what counts where.

    Raises `ModelError` for bytes that are no ONNX model and for external data that can't be read.
    """
    graph, opaque = _walk(files, logged=False)
    if opaque:  # as few models are: then names count, and are gathered
        graph, _ = _walk(files, logged=True)
    return graph


def _walk(files: Files, *, logged: bool) -> tuple[GraphId, bool]:
    """The identity, and whether names must be logged for it."""
    walker = GraphWalker(files, logged=logged)
    out = walker.structure
    metadata = Tokens("trivet 2026 graph metadata onnx v1")
    found = _scan(walker, metadata)
    inputs, outputs = _main_graph(walker, metadata, *found.graph)
    for start, end in pairs(found.functions):
        _function(walker, start, end)
    for start, end in pairs(found.training):
        _training(walker, start, end)
    walker.unknown(found.unknown)
    if walker.opaque:
        out.data(_NAMES, walker.names.log())
    graph = GraphId(
        format="onnx",
        structure=out.finish(),
        weights=walker.weights.finish(),
        metadata=metadata.finish(),
        inputs=inputs,
        outputs=outputs,
        operators=_operators(walker),
        sources=tuple(files.sources.values()),
    )
    return graph, walker.opaque


def _scan(walker: GraphWalker, metadata: Tokens) -> _Model:
    """Where the parts of the model are; versions and metadata are counted on the way."""
    reader = walker.reader
    graph: tuple[int, int] | None = None
    functions, training = array("Q"), array("Q")
    unknown: list[Field] = []
    for key, first, last in fields(reader, 0, reader.size):
        if key == _GRAPH:
            if graph is not None:
                fail(reader, first, "the model has two graphs")
            graph = first, last
        elif key == _IR_VERSION:
            walker.structure.number(key, first)
        elif key == _OPSET:
            _opset(walker, first, last)
        elif key == _FUNCTION:
            functions.extend((first, last))
        elif key == _TRAINING:
            training.extend((first, last))
        elif key in _NEUTRAL:
            put_unknown(metadata, reader, [(key, first, last)])
        else:
            unknown.append((key, first, last))
    if graph is None:
        raise ModelError(f"{reader.path!r} is not an ONNX model: it has no graph")
    return _Model(graph, functions, training, unknown)


def _main_graph(
    walker: GraphWalker, metadata: Tokens, start: int, end: int
) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    parts = walker.graph(start, end, top=True)
    for name in parts.names:
        metadata.data(NAME, name)
    optional = {each.name for each in parts.initializers}
    reader = walker.reader
    return (
        tuple(tensor_info(reader, each) for each in parts.inputs if each.name not in optional),
        tuple(tensor_info(reader, each) for each in parts.outputs),
    )


def _opset(walker: GraphWalker, start: int, end: int) -> None:
    """Count an ``OperatorSetIdProto``; no domain and an empty one are the same."""
    out = walker.structure
    domain, version = b"", 0
    out.begin(_OPSET)
    for key, first, last in fields(walker.reader, start, end):
        if key == tag(1, BYTES):
            domain = walker.reader.read(first, last)
        elif key == tag(2, VARINT):
            version = first
        else:
            walker.unknown([(key, first, last)])
    out.data(1, domain)
    out.number(2, version)
    out.end()


def _function(walker: GraphWalker, start: int, end: int) -> None:
    """Count a ``FunctionProto``. Its body sees nothing of the graph; parameters go by position."""
    reader, out = walker.reader, walker.structure
    heads = {tag(1, BYTES): NAME, tag(10, BYTES): DOMAIN, tag(13, BYTES): OVERLOAD}
    heads[tag(6, BYTES)] = ATTRIBUTE_NAME
    values = {tag(4, BYTES): INPUT, tag(5, BYTES): OUTPUT}
    nodes, inner, outputs = array("Q"), array("Q"), list[bytes]()
    outside = walker.names.swap()
    out.begin(_FUNCTIONS)
    for key, first, last in fields(reader, start, end):
        if key in heads:
            out.data(heads[key], reader.read(first, last))
        elif key in values:
            name = reader.read(first, last)
            if key == tag(4, BYTES):
                out.number(INPUT, walker.names.numbers[name])
            else:
                outputs.append(name)
        elif key == tag(7, BYTES):
            nodes.extend((first, last))
        elif key == tag(12, BYTES):
            inner.extend((first, last))
        elif key == tag(9, BYTES):
            _opset(walker, first, last)
        elif key == tag(11, BYTES):
            walker.attribute(first, last)
        elif key not in (tag(8, BYTES), tag(14, BYTES)):
            walker.unknown([(key, first, last)])
    walker.nodes(nodes, [])
    for name in outputs:
        out.number(OUTPUT, walker.names.numbers[name])
    walker.inner_values(inner)
    out.end()
    walker.names.swap(outside)


def _training(walker: GraphWalker, start: int, end: int) -> None:
    """Count a ``TrainingInfoProto``: two graphs, and bindings that refer to values by name."""
    walker.opaque = True
    walker.structure.begin(_TRAINING)
    for key, first, last in fields(walker.reader, start, end):
        if key in (tag(1, BYTES), tag(2, BYTES)):
            walker.structure.number(NAME, key)
            walker.graph(first, last)
        else:
            walker.unknown([(key, first, last)])
    walker.structure.end()


def _operators(walker: GraphWalker) -> tuple[str, ...]:
    try:
        named = {
            f"{domain.decode() or 'ai.onnx'}::{operator.decode()}"
            for domain, operator, _ in walker.operators
        }
    except UnicodeDecodeError as error:
        raise ModelError(
            f"{walker.reader.path!r} has an operator whose name is not UTF-8"
        ) from error
    return tuple(sorted(named))
