"""Identity of an OpenVINO IR model: the .xml element by element, constants by their content.

Counted as it stands is everything but: names of the net and of inner layers, all names inside
bodies of loops and branches (the serialiser takes them from a counter), the order of edges, the
place of constants in the .bin, and the notes listed in ``_NEUTRAL_INFO``. Other ``rt_info``, of
layers and of the net, counts, because some of it steers execution.
"""

from __future__ import annotations

from xml.parsers import expat

from trivet.errors import ModelError
from trivet.plans.graph.files import Files
from trivet.plans.graph.ir_signature import Signature
from trivet.plans.graph.tokens import Tokens
from trivet.plans.model import GraphId

ELEMENT, ATTRIBUTE, VALUE, TEXT, EDGE, CONTENT = range(1, 7)

_PIECE = 64 << 10
_MAX_DEPTH = 100
_SMALL = 1 << 10
_INTEGERS = {"i32", "i64", "u32", "u64", "boolean", "string"}
_EDGE = ("from-layer", "from-port", "to-layer", "to-port")
_NEUTRAL_INFO = {
    "MO_version",
    "Runtime_version",
    "conversion_parameters",
    "legacy_frontend",
    "model_info",
    "nncf",
    "optimum",
}


def identify_ir(files: Files) -> GraphId:
    """Identity of the IR whose .xml is the main file and whose .bin lies beside it.

    Raises `ModelError` for malformed XML, for a document type declaration (entities are never
    expanded), and for a .bin that is missing or too short.
    """
    walker = _Walker(files)
    parser = expat.ParserCreate("utf-8")  # whatever the document declares
    parser.buffer_text = True
    parser.StartElementHandler = walker.start
    parser.EndElementHandler = walker.end
    parser.CharacterDataHandler = walker.text
    parser.StartDoctypeDeclHandler = walker.doctype
    reader = files.main
    try:
        for at in range(0, reader.size, _PIECE):
            # A copy of its own: the parser holds on to it while weights are being read.
            parser.Parse(reader.read(at, min(at + _PIECE, reader.size)), False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise ModelError(f"{reader.path!r} is malformed: {error}") from error
    if not walker.is_net:
        raise ModelError(f"{reader.path!r} is not an OpenVINO IR: its root is no <net>")
    return GraphId(
        format="openvino-ir",
        structure=walker.structure.finish(),
        weights=walker.weights.finish(),
        metadata=walker.metadata.finish(),
        inputs=walker.signature.inputs(),
        outputs=walker.signature.outputs(),
        operators=tuple(sorted(walker.operators)),
        sources=tuple(files.sources.values()),
    )


class _Walker:
    """Handlers for the events of the XML parser."""

    def __init__(self, files: Files) -> None:
        self.structure = Tokens("trivet 2026 graph structure openvino-ir v1")
        self.weights = Tokens("trivet 2026 graph weights openvino-ir v1")
        self.metadata = Tokens("trivet 2026 graph metadata openvino-ir v1")
        self.signature = Signature()
        self.operators: set[str] = set()
        self.is_net = False
        self._files = files
        self._bin = files.main.path[: -len(".xml")] + ".bin"
        self._stack: list[str] = []
        self._layers: list[str] = []  # types of the layers that are open, outermost first
        self._edges: list[list[tuple[str, ...]]] = []  # of the <edges> that are open
        self._text: list[str] = []
        self._neutral = 0  # depth at which a neutral part began, or 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        self._flush()
        if len(self._stack) >= _MAX_DEPTH:
            raise ModelError(f"{self._files.main.path!r} is nested more than {_MAX_DEPTH} deep")
        if not self._stack:
            self.is_net = tag == "net"
            self.metadata.data(VALUE, attributes.pop("name", "").encode())
        parent = self._stack[-1] if self._stack else ""
        self._stack.append(tag)
        if tag == "layer":
            self._layer(attributes)
        if not self._neutral and _is_neutral(tag, parent, attributes):
            self._neutral = len(self._stack)
        if self._neutral:
            _put(self.metadata, tag, attributes)
            return
        if tag == "edges":
            self._edges.append([])
        elif tag == "edge" and self._edges and attributes.keys() == set(_EDGE):
            self._edges[-1].append(tuple(attributes[each] for each in _EDGE))
            attributes = {}
        if len(self._layers) == 1:
            self.signature.start(tag, parent, attributes)
        self._content(tag, attributes)
        if len(self._layers) > 1:
            attributes.pop("names", None)
            attributes.pop("output_names", None)
        if tag == "layer" and (len(self._layers) > 1 or self._layers[0] not in _NAMED):
            attributes.pop("name", None)
        _put(self.structure, tag, attributes)

    def end(self, tag: str) -> None:
        """An element ends."""
        self._flush()
        out = self.metadata if self._neutral else self.structure
        if not self._neutral and tag == "edges":
            edges = sorted(self._edges.pop())
            for edge in edges:
                out.data(EDGE, " ".join(edge).encode())
            if not self._layers:
                self.signature.edges(edges)
        out.end()
        if self._neutral == len(self._stack):
            self._neutral = 0
        if len(self._layers) == 1:
            self.signature.end(tag)
        if tag == "layer":
            self._layers.pop()
        self._stack.pop()

    def text(self, text: str) -> None:
        """A piece of the text between two tags."""
        self._text.append(text)

    def _flush(self) -> None:
        """Count the text since the last tag; what only indents does not count."""
        text = "".join(self._text).strip()
        self._text.clear()
        if text:
            (self.metadata if self._neutral else self.structure).data(TEXT, text.encode())
            if len(self._layers) == 1:
                self.signature.text(self._stack[-1], text)

    def doctype(self, *_: object) -> None:
        """A document type declaration could define entities; no IR has one."""
        raise ModelError(f"{self._files.main.path!r} has a document type declaration: refused")

    def _layer(self, attributes: dict[str, str]) -> None:
        type_ = attributes.get("type", "")
        self._layers.append(type_)
        self.operators.add(f"{attributes.get('version', '')}::{type_}")

    def _content(self, tag: str, attributes: dict[str, str]) -> None:
        """Count the range of the .bin that an element refers to, instead of where it is."""
        if "offset" not in attributes or "size" not in attributes:
            return
        offset, size = self._bytes(attributes["offset"]), self._bytes(attributes["size"])
        digest = self._files.range_digest(self._bin, offset, size)
        self.weights.digest(CONTENT, size, digest)
        if size <= _SMALL and attributes.get("element_type") in _INTEGERS:
            self.structure.digest(CONTENT, size, digest)
        if tag == "data" and self._layers and self._layers[-1] == "Const":
            del attributes["offset"]

    def _bytes(self, value: str) -> int:
        if not (value.isascii() and value.isdigit() and len(value) < 19):
            raise ModelError(
                f"{self._files.main.path!r} has {value!r} where a number of bytes belongs"
            )
        return int(value)


_NAMED = {"Parameter", "Result"}


def _is_neutral(tag: str, parent: str, attributes: dict[str, str]) -> bool:
    if parent == "rt_info":
        return (
            tag in _NEUTRAL_INFO
            or (tag == "info" and attributes.get("name") == "OpenVINO Runtime")
            or (tag == "attribute" and attributes.get("name") == "fused_names")
        )
    return parent == "net" and tag == "meta_data"


def _put(out: Tokens, tag: str, attributes: dict[str, str]) -> None:
    out.begin(ELEMENT)
    out.data(ELEMENT, tag.encode())
    for name in sorted(attributes):
        out.data(ATTRIBUTE, name.encode())
        out.data(VALUE, attributes[name].encode())
