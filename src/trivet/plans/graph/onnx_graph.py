"""Graphs, nodes and attributes of an ONNX file, put into tokens.

Every field is either counted, known to be neutral (documentation, names that nothing refers to),
or unknown; unknown fields are counted as they stand. Field numbers are those of onnx.proto.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from blake3 import blake3

from trivet.plans.graph.files import Files
from trivet.plans.graph.names import Names
from trivet.plans.graph.onnx_nodes import ATTRIBUTE_FIELD, Kind, read_node
from trivet.plans.graph.onnx_types import ValueInfo, read_value_info
from trivet.plans.graph.plain_tensors import Tensor
from trivet.plans.graph.tensors import put_unknown, raw_pieces, read_sparse, read_tensor
from trivet.plans.graph.tokens import END, Piece, Tokens, lists, short
from trivet.plans.graph.wire import BYTES, FIXED32, VARINT, Field, fail, fields, tag

# Labels of tokens; those of attributes are the tags of their fields.
GRAPH, INPUT, OUTPUT, NAME, TYPE, NODE, OPERATOR, DOMAIN, OVERLOAD, ATTRIBUTE = range(1, 11)
INITIALIZER, UNUSED, INNER, ANNOTATION, ATTRIBUTE_NAME, TENSOR, ROLE = range(11, 18)

_MAX_NESTING = 32  # graphs in graphs; protobuf's own limit of 100 messages ends at about as many
_SHORT, _MAX_ATTRIBUTES = 256, 4096  # bytes, and how many of that length are remembered

_G_NODE, _G_NAME, _G_INITIALIZER, _G_DOC = tag(1, 2), tag(2, 2), tag(5, 2), tag(10, 2)
_G_INPUT, _G_OUTPUT, _G_VALUE, _G_ANNOTATION = tag(11, 2), tag(12, 2), tag(13, 2), tag(14, 2)
_G_SPARSE, _G_METADATA = tag(15, 2), tag(16, 2)
_A_NAME, _A_DOC = tag(1, 2), tag(13, 2)
_A_NUMBERS = {tag(2, FIXED32), tag(3, VARINT), tag(20, VARINT)}
_A_TEXTS = {tag(4, 2), tag(21, 2), tag(14, 2), tag(15, 2)}  # types count as they stand
_A_LISTS = {7: FIXED32, 8: VARINT, 9: BYTES}
_A_TENSORS, _A_GRAPHS, _A_SPARSE = {tag(5, 2), tag(10, 2)}, {tag(6, 2), tag(11, 2)}, tag(22, 2)
_A_GRAPH_NUMBERS = {6, 11}
_A_SPARSES = {_A_SPARSE, tag(23, 2)}
_A_ONCE = {1, 2, 3, 4, 5, 6, 14, 20, 21, 22}


class _Parts(NamedTuple):
    """Where the parts of a graph are; ranges are flat arrays of start, end, start, end, ..."""

    nodes: array[int]
    inputs: list[ValueInfo]
    outputs: list[ValueInfo]
    values: array[int]
    annotations: array[int]
    initializers: list[Tensor]
    unknown: list[Field]
    names: list[bytes]  # of the graph itself


class GraphWalker:
    """Puts graphs into tokens.

    Attributes:
        structure, weights: where the tokens go.
        names: of the values.
        operators: domain, type and overload of every node seen.
        opaque: whether a field was met that might refer to values by name unknown to this version;
            all names count then, and must be ``logged``.
    """

    def __init__(self, files: Files, *, logged: bool = False) -> None:
        self.files = files
        self.reader = files.main
        self.structure = Tokens("trivet 2026 graph structure onnx v1")
        self.weights = Tokens("trivet 2026 graph weights onnx v1")
        self.names = Names(logged=logged)
        self.operators: dict[Kind, bytes] = {}  # and the tokens that such a node begins with
        self.opaque = False
        self._nesting = 0
        # Tokens of structure and weights by the bytes of an attribute; most occur again and again.
        self._attributes: dict[bytes, tuple[bytes, bytes]] = {}

    def graph(self, start: int, end: int, *, top: bool = False) -> _Parts:
        """Count a graph. Of the ``top`` one, names of inputs and outputs count."""
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            fail(self.reader, start, f"graphs are nested more than {_MAX_NESTING} deep")
        parts = self._scan(start, end)
        out, names = self.structure, self.names
        mark = names.mark()
        defined = [each.name for each in parts.inputs]
        out.begin(GRAPH)
        for each in parts.inputs:
            self.value(INPUT, each, literal=top)
        self.nodes(parts.nodes, defined)
        for each in parts.outputs:
            self.value(OUTPUT, each, literal=top)
        for start, end in pairs(parts.annotations):
            self._annotation(start, end)
        defined += [each.name for each in parts.initializers]
        self._initializers(parts.initializers)
        self.inner_values(parts.values)
        self.unknown(parts.unknown)
        out.end()
        if not top:
            names.leave(mark, defined)
        self._nesting -= 1
        return parts

    def nodes(self, ranges: array[int], defined: list[bytes]) -> None:
        """Count nodes in file order and add the names of their outputs to ``defined``."""
        reader, out, heads, names = self.reader, self.structure, self.operators, self.names
        number = names.numbers.__getitem__
        for start, end in pairs(ranges):
            kind, name, inputs, outputs, rest = read_node(reader, start, end)
            if names.logged:
                names.note(name)
            head = heads.get(kind) or self._new_operator(kind)
            head += lists(INPUT, [*map(number, inputs)], OUTPUT, [*map(number, outputs)])
            if rest:
                out.append(head)
                head = b""
                for key, first, last in rest:
                    if key == ATTRIBUTE_FIELD:
                        self.attribute(first, last)
                self.unknown([each for each in rest if each[0] != ATTRIBUTE_FIELD])
            out.append(head + END)
            defined += outputs

    def _new_operator(self, kind: Kind) -> bytes:
        """The tokens that a node of a kind begins with."""
        head = Piece()
        head.begin(NODE)
        head.append(short(*zip((DOMAIN, OPERATOR, OVERLOAD), kind, strict=True)))
        self.operators[kind] = head.taken()
        return self.operators[kind]

    def value(self, label: int, value: ValueInfo, *, literal: bool) -> None:
        """Count one input or output, by name when ``literal``."""
        self.structure.number(label, self.names.numbers[value.name])
        if literal:
            self.structure.data(NAME, value.name)
        self.structure.data(TYPE, self.reader.read(*value.type))
        self._unknown_of_value(value.unknown)

    def inner_values(self, ranges: array[int]) -> None:
        """Count the types noted for inner values; their order does not matter."""
        found = []
        for start, end in pairs(ranges):
            value = read_value_info(self.reader, start, end)
            type_ = self.reader.read(*value.type)
            found.append((self.names.numbers.get(value.name, 0), type_, value.name, value.unknown))
        for number, type_, name, unknown in sorted(found):
            self.structure.number(INNER, number)
            self.structure.data(TYPE, type_)
            self._unknown_of_value(unknown)
            if not number:
                self.names.note(name)

    def unknown(self, found: list[Field]) -> None:
        """Count fields that no rule classifies."""
        if found:
            self.opaque = True
            put_unknown(self.structure, self.reader, found)

    def _unknown_of_value(self, found: list[Field]) -> None:
        """`unknown`, told apart from what follows the value."""
        if found:
            self.structure.begin(TYPE)
            self.unknown(found)
            self.structure.end()

    def _scan(self, start: int, end: int) -> _Parts:
        reader, files = self.reader, self.files
        nodes, values, annotations = array("Q"), array("Q"), array("Q")
        parts = _Parts(nodes, [], [], values, annotations, [], [], [])
        node = nodes.append
        for key, first, last in fields(reader, start, end):
            if key == _G_NODE:
                node(first)
                node(last)
            elif key == _G_INITIALIZER:
                parts.initializers.append(read_tensor(files, reader, first, last))
            elif key == _G_SPARSE:
                parts.initializers.append(read_sparse(files, reader, first, last))
            elif key == _G_INPUT:
                parts.inputs.append(read_value_info(reader, first, last))
            elif key == _G_OUTPUT:
                parts.outputs.append(read_value_info(reader, first, last))
            elif key == _G_VALUE:
                values.extend((first, last))
            elif key == _G_ANNOTATION:
                annotations.extend((first, last))
            elif key == _G_NAME:
                parts.names.append(reader.read(first, last))
            elif key not in (_G_DOC, _G_METADATA):
                parts.unknown.append((key, first, last))
        return parts

    def attribute(self, start: int, end: int) -> None:
        """Count one attribute: name, type, whichever value it has."""
        if end - start > _SHORT:
            self._attribute(start, end)
            return
        data = self.reader.read(start, end)
        tokens = self._attributes.get(data)
        if tokens is None:
            outer = self.structure, self.weights
            self.structure, self.weights = pieces = Piece(), Piece()
            is_context_free = self._attribute(start, end)
            self.structure, self.weights = outer
            tokens = pieces[0].taken(), pieces[1].taken()
            if is_context_free and len(self._attributes) < _MAX_ATTRIBUTES:
                self._attributes[data] = tokens
        self.structure.append(tokens[0])
        self.weights.append(tokens[1])

    def _attribute(self, start: int, end: int) -> bool:
        """Count one attribute; False if its tokens depend on the names around, as a graph's do."""
        reader, out = self.reader, self.structure
        seen: set[int] = set()
        listed: set[int] = set()
        out.begin(ATTRIBUTE)
        for key, first, last in fields(reader, start, end):
            number = key >> 3
            if number in seen and number in _A_ONCE:
                fail(reader, first, f"an attribute has its field {number} twice")
            if number in _A_LISTS and key & 7 in (BYTES, _A_LISTS[number]):
                if number not in listed:
                    self._list(number, start, end)
                listed.add(number)
            elif key in _A_NUMBERS:
                out.number(key, first)
            elif key in _A_TEXTS:
                out.digest(key, last - first, reader.digest(first, last))
            elif key == _A_NAME:
                out.data(ATTRIBUTE_NAME, reader.read(first, last))
            else:
                self._attribute_message(key, first, last)
            seen.add(number)
        out.end()
        return not seen & _A_GRAPH_NUMBERS

    def _attribute_message(self, key: int, first: int, last: int) -> None:
        if key in _A_TENSORS:
            self.structure.begin(key)
            self._tensor(read_tensor(self.files, self.reader, first, last))
            self.structure.end()
        elif key in _A_SPARSES:
            self.structure.begin(key)
            self._tensor(read_sparse(self.files, self.reader, first, last))
            self.structure.end()
        elif key in _A_GRAPHS:
            self.structure.begin(key)
            self.graph(first, last)
            self.structure.end()
        elif key != _A_DOC:
            self.unknown([(key, first, last)])

    def _list(self, number: int, start: int, end: int) -> None:
        size = 0
        hasher = blake3()
        wire = _A_LISTS[number]
        for piece in raw_pieces(self.reader, start, end, number, wire, "q", framed=True):
            size += memoryview(piece).nbytes
            hasher.update(piece)
        self.structure.digest(number, size, hasher.digest())

    def _tensor(self, tensor: Tensor) -> None:
        """Type and shape to the structure, content to the weights, in step."""
        self.structure.data(TENSOR, tensor.kind)
        self.weights.data(TENSOR, tensor.content)
        self.opaque = self.opaque or tensor.opaque

    def _initializers(self, found: list[Tensor]) -> None:
        """Count initialisers where they are used first; those that nothing uses as a set."""
        known = self.names.numbers.get
        used = [(known(each[0], 0), i) for i, each in enumerate(found)]
        structure, weights = self.structure.numbered, self.weights.data
        for number, i in sorted(used):
            if number:
                _, kind, content, opaque = found[i]
                structure(INITIALIZER, number, TENSOR, kind)
                weights(TENSOR, content)
                if opaque:
                    self.opaque = True
        unused = sorted(found[i][1:] + found[i][:1] for number, i in used if not number)
        for kind, content, opaque, name in unused:
            self.structure.number(UNUSED, 0)
            self.names.note(name)
            self._tensor(Tensor(name, kind, content, opaque))

    def _annotation(self, start: int, end: int) -> None:
        """Count a ``TensorAnnotation``: which tensors hold scale and zero point of a value."""
        reader, out = self.reader, self.structure
        out.begin(ANNOTATION)
        unknown: list[Field] = []
        for key, first, last in fields(reader, start, end):
            if key == tag(1, BYTES):
                out.number(NAME, self.names.numbers[reader.read(first, last)])
            elif key == tag(2, BYTES):
                for inner, begin, stop in fields(reader, first, last):
                    if inner == tag(1, BYTES):
                        out.data(ROLE, reader.read(begin, stop))
                    elif inner == tag(2, BYTES):
                        out.number(NAME, self.names.numbers[reader.read(begin, stop)])
                    else:
                        unknown.append((inner, begin, stop))
            else:
                unknown.append((key, first, last))
        self.unknown(unknown)
        out.end()


def pairs(flat: array[int]) -> Iterator[tuple[int, int]]:
    """Ranges kept as start, end, start, end, ..."""
    each = iter(flat)
    return zip(each, each, strict=True)
