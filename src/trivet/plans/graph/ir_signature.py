"""Inputs and outputs of an OpenVINO IR, gathered while its .xml is being parsed."""

from __future__ import annotations

import re

from trivet.plans.graph.dtypes import OPENVINO
from trivet.plans.model import Dimension, TensorInfo

_PRECISIONS = {"FP16": "f16", "FP32": "f32", "FP64": "f64", "BOOL": "boolean"}


class Signature:
    """Fed with the elements of the outermost layers; knows the types of Parameter and Result.

    A tensor goes by the first of its names in sorted order, as in OpenVINO's ``any_name``; one
    without names goes by the name of its layer.
    """

    def __init__(self) -> None:
        self._inputs: list[TensorInfo] = []
        self._results: list[tuple[str, TensorInfo]] = []  # id of the layer, what it returns
        self._names: dict[tuple[str, str], str] = {}  # layer and port: name of the tensor
        self._producers: dict[str, tuple[str, str]] = {}  # id of a Result: layer and port
        self._layer: dict[str, str] = {}
        self._data: dict[str, str] = {}
        self._port: dict[str, str] = {}
        self._dims: list[Dimension] = []

    def start(self, tag: str, parent: str, attributes: dict[str, str]) -> None:
        """An element of an outermost layer, or such a layer itself, begins."""
        if tag == "layer":
            self._layer, self._data, self._port = dict(attributes), {}, {}
            self._dims = []
        elif tag == "data":
            self._data = dict(attributes)
        elif tag == "port":
            self._port = dict(attributes)
            if parent == "output" and attributes.get("names"):
                place = self._layer.get("id", ""), attributes.get("id", "")
                self._names[place] = _first(attributes["names"])

    def text(self, tag: str, text: str) -> None:
        """Text of an element of an outermost layer."""
        if tag == "dim":
            self._dims.append(_dimension(text))

    def end(self, tag: str) -> None:
        """Such an element ends."""
        if tag != "layer":
            return
        kind, name = self._layer.get("type"), self._layer.get("name", "")
        if kind == "Parameter":
            dtype = self._data.get("element_type", "")
            place = self._layer.get("id", ""), self._port.get("id", "")
            shape = _shape(self._data.get("shape", ""))
            self._inputs.append(
                TensorInfo(self._names.get(place, name), OPENVINO.get(dtype, dtype), shape)
            )
        elif kind == "Result":
            precision = self._port.get("precision", "")
            dtype = _PRECISIONS.get(precision, precision.lower())
            own = self._layer.get("output_names", "")
            info = TensorInfo(
                _first(own) if own else "", OPENVINO.get(dtype, dtype), tuple(self._dims)
            )
            self._results.append((self._layer.get("id", ""), info))
            if not own:
                self._names[self._layer.get("id", ""), "(layer)"] = name

    def edges(self, edges: list[tuple[str, ...]]) -> None:
        """The edges of the net: from layer, from port, to layer, to port."""
        results = {layer for layer, _ in self._results}
        for from_layer, from_port, to_layer, _ in edges:
            if to_layer in results:
                self._producers[to_layer] = from_layer, from_port

    def inputs(self) -> tuple[TensorInfo, ...]:
        """In the order of the Parameter layers."""
        return tuple(self._inputs)

    def outputs(self) -> tuple[TensorInfo, ...]:
        """In the order of the Result layers."""
        return tuple(self._named(layer, info) for layer, info in self._results)

    def _named(self, layer: str, info: TensorInfo) -> TensorInfo:
        if info.name:
            return info
        name = self._names.get(self._producers.get(layer, ("", "")))
        return TensorInfo(
            self._names.get((layer, "(layer)"), "") if name is None else name,
            info.dtype,
            info.shape,
        )


def _first(names: str) -> str:
    """The first, in sorted order, of names parted by commas; a comma in a name is escaped."""
    return min(each.replace("\\,", ",") for each in re.split(r"(?<!\\),", names))


def _dimension(text: str) -> Dimension:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _shape(text: str) -> tuple[Dimension, ...] | None:
    if "..." in text.split(","):
        return None
    return tuple(_dimension(each.strip()) for each in text.split(",")) if text.strip() else ()
