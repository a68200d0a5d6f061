"""Reading a saved ONNX Runtime plan: where its weights are, and whether it depends on this CPU.

An optimised model is a graph, not machine code, and most of it means the same everywhere. Some of
it does not: the NCHWc transformation reorders weights into blocks whose size follows the CPU, and
ONNX Runtime loads such a model on another CPU without a word and returns other numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from trivet.plans.backends.onnxruntime_options import Options
from trivet.plans.graph.dtypes import ONNX
from trivet.plans.graph.files import Reader
from trivet.plans.graph.wire import BYTES, VARINT, fields, tag
from trivet.plans.host import read_host
from trivet.plans.model import GraphId

# Domains whose operators mean the same on every CPU. Custom domains may do anything.
_PLAIN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
NCHWC_DOMAIN = "com.microsoft.nchwc"

# Element types for which ONNX Runtime has kernels on every CPU. For others it asks the CPU, and
# writes casts into the graph where there is none.
_PLAIN_TYPES = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13})
_PLAIN_TYPE_NAMES = frozenset(ONNX[code].name for code in _PLAIN_TYPES)
_CPU_DEPENDENT = ("quant", "qlinear", "integer", "nbits", "moe", "qgemm", "qattention")
_LAYOUT_DEPENDENT = ("conv", "pool")

_MODEL_GRAPH, _MODEL_FUNCTIONS = tag(7, BYTES), tag(25, BYTES)
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = tag(1, BYTES), tag(5, BYTES), tag(15, BYTES)
_FUNCTION_NODE = tag(7, BYTES)
_SPARSE_VALUES, _SPARSE_INDICES = tag(1, BYTES), tag(2, BYTES)
_NODE_TYPE, _NODE_ATTRIBUTE, _NODE_DOMAIN = tag(4, BYTES), tag(5, BYTES), tag(7, BYTES)
_ATTRIBUTE_NAME, _ATTRIBUTE_INT = tag(1, BYTES), tag(3, VARINT)
_ATTRIBUTE_TENSORS = frozenset({tag(5, BYTES), tag(10, BYTES)})
_ATTRIBUTE_GRAPHS = frozenset({tag(6, BYTES), tag(11, BYTES)})
_ATTRIBUTE_SPARSE = frozenset({tag(22, BYTES), tag(23, BYTES)})
_TENSOR_TYPE, _TENSOR_EXTERNAL = tag(2, VARINT), tag(13, BYTES)
_ENTRY_KEY, _ENTRY_VALUE = tag(1, BYTES), tag(2, BYTES)


class SavedModel(msgspec.Struct, frozen=True):
    """What an ONNX file contains, subgraphs and functions included.

    Attributes:
        operators: ``(domain, type)`` of every node.
        types: ONNX codes of the element types of weights, constants and casts.
        locations: files that hold weights.
    """

    operators: set[tuple[str, str]]
    types: set[int]
    locations: set[str]


def scan(path: Path) -> SavedModel:
    """Walk an ONNX file. Raises `ModelError` when it is malformed."""
    found = SavedModel(set(), set(), set())
    reader = Reader(os.fspath(path), bytearray(1 << 16))
    try:
        for key, first, last in fields(reader, 0, reader.size):
            if key == _MODEL_GRAPH:
                _graph(reader, first, last, found)
            elif key == _MODEL_FUNCTIONS:
                for inner, start, end in fields(reader, first, last):
                    if inner == _FUNCTION_NODE:
                        _node(reader, start, end, found)
    finally:
        reader.close()
    return found


def _graph(reader: Reader, start: int, end: int, found: SavedModel) -> None:
    for key, first, last in fields(reader, start, end):
        if key == _GRAPH_NODE:
            _node(reader, first, last, found)
        elif key == _GRAPH_INITIALIZER:
            _tensor(reader, first, last, found)
        elif key == _GRAPH_SPARSE:
            _sparse(reader, first, last, found)


def _node(reader: Reader, start: int, end: int, found: SavedModel) -> None:
    name = domain = ""
    for key, first, last in fields(reader, start, end):
        if key == _NODE_TYPE:
            name = reader.read(first, last).decode()
        elif key == _NODE_DOMAIN:
            domain = reader.read(first, last).decode()
        elif key == _NODE_ATTRIBUTE:
            _attribute(reader, first, last, found)
    found.operators.add((domain, name))


def _attribute(reader: Reader, start: int, end: int, found: SavedModel) -> None:
    name = b""
    number = None
    for key, first, last in fields(reader, start, end):
        if key == _ATTRIBUTE_NAME:
            name = reader.read(first, last)
        elif key == _ATTRIBUTE_INT:
            number = first
        elif key in _ATTRIBUTE_TENSORS:
            _tensor(reader, first, last, found)
        elif key in _ATTRIBUTE_GRAPHS:
            _graph(reader, first, last, found)
        elif key in _ATTRIBUTE_SPARSE:
            _sparse(reader, first, last, found)
    if number is not None and name in (b"to", b"dtype", b"stash_type"):
        found.types.add(number)


def _sparse(reader: Reader, start: int, end: int, found: SavedModel) -> None:
    for key, first, last in fields(reader, start, end):
        if key in (_SPARSE_VALUES, _SPARSE_INDICES):
            _tensor(reader, first, last, found)


def _tensor(reader: Reader, start: int, end: int, found: SavedModel) -> None:
    for key, first, last in fields(reader, start, end):
        if key == _TENSOR_TYPE:
            found.types.add(first)
        elif key == _TENSOR_EXTERNAL:
            entry = dict(_entry(reader, first, last))
            if entry.get(_ENTRY_KEY) == "location":
                found.locations.add(entry.get(_ENTRY_VALUE, ""))


def _entry(reader: Reader, start: int, end: int) -> Iterator[tuple[int, str]]:
    for key, first, last in fields(reader, start, end):
        if key in (_ENTRY_KEY, _ENTRY_VALUE):
            yield key, reader.read(first, last).decode(errors="replace")


def cpu_dependence(source: SavedModel, saved: SavedModel, graph: GraphId, options: Options) -> str:
    """Why a plan is bound to the instruction set that made it; empty when it is portable.

    A plan is portable only when nothing that ONNX Runtime decided by looking at the CPU can be in
    it: correctness before hit rate. Below ``level="all"`` the optimiser does not change layouts; at
    ``"all"`` a graph without convolution or pooling gives it nothing to change. The source model is
    looked at too, since casts around low-precision weights may be folded away in the saved one.
    """
    operators = source.operators | saved.operators
    domains = {domain for domain, _ in operators}
    names = [name.lower() for _, name in operators]
    ends = {each.dtype for each in (*graph.inputs, *graph.outputs)}
    reasons = (
        (NCHWC_DOMAIN in domains, "weights are reordered into blocks of this CPU's width"),
        (bool(options.custom_op_libraries), "custom operators may depend on the CPU"),
        (
            not domains <= _PLAIN_DOMAINS,
            "operators of another domain may depend on the CPU",
        ),
        (bool(options.significant_entries), "options may depend on the CPU"),
        (_any_part(names, _CPU_DEPENDENT), "quantised operators are fused by what the CPU can do"),
        (
            not (source.types | saved.types <= _PLAIN_TYPES and ends <= _PLAIN_TYPE_NAMES),
            "element types for which ONNX Runtime asks the CPU",
        ),
        (
            options.level == "all" and _any_part(names, _LAYOUT_DEPENDENT),
            'at level "all" the layout of convolutions follows the CPU',
        ),
    )
    return next((reason for applies, reason in reasons if applies), "")


def _any_part(names: list[str], parts: tuple[str, ...]) -> bool:
    return any(part in name for name in names for part in parts)


def cpu_detail() -> dict[str, object]:
    """Instruction set and NCHWc block size (channels) of this machine, for people to read."""
    features = read_host(os.environ).instruction_set
    wide = os.uname().machine == "aarch64" or "avx512f" in features
    return {"nchwc_block": 16 if wide else 8, "instruction_set": list(features)}
