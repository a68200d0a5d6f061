"""The graph of an exported PyTorch program without the names that tracing made up.

Deny by default: what is not known to be a name or a note counts as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Notes of the tracer: where in the source, in which module, by which function.
_NOTES = {"stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack", "from_node"}
_TENSORS = {
    *("as_tensor", "as_tensors", "as_optional_tensor", "as_optional_tensors"),
    *("as_nested_tensors", "as_custom_obj"),
}
_SYMBOLIC = {"as_sym_int", "as_sym_ints", "as_sym_bool", "as_sym_bools"}
_SYMBOLIC |= {"as_sym_float", "as_sym_floats"}


class GraphNames:
    """Numbers instead of the names of values, in the order in which they are first seen.

    Attributes:
        operators: what the nodes of the graphs call, as it is written.
    """

    def __init__(self, operators: set[str] | None = None) -> None:
        self.operators: set[str] = set() if operators is None else operators
        self._numbers: dict[str, int] = {}

    def graph(self, graph: Mapping[str, Any]) -> dict[str, Any]:
        """A ``Graph`` of the export schema."""
        found: dict[str, Any] = {"inputs": self.argument(graph["inputs"])}
        found["nodes"] = [self._node(each) for each in graph["nodes"]]
        found["outputs"] = self.argument(graph["outputs"])
        for key, value in graph.items():
            if key.endswith("_values") and isinstance(value, dict):
                found[key] = sorted(
                    ([self._number(name), each] for name, each in value.items()),
                    key=lambda pair: pair[0],
                )
            elif key not in found:
                found[key] = value
        return found

    def specs(self, specs: list[Any]) -> list[Any]:
        """Input or output specifications of a graph's signature."""
        return [
            {
                kind: {k: self._of_spec(v) if k == "arg" else v for k, v in body.items()}
                for kind, body in each.items()
            }
            for each in specs
        ]

    def argument(self, value: Any) -> Any:
        """An ``Argument`` of the export schema, or a list of them."""
        if isinstance(value, list):
            return [self.argument(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {tag: self._tagged(tag, each) for tag, each in value.items()}

    def _tagged(self, tag: str, value: Any) -> Any:
        if tag in _TENSORS:
            return self._named(value, "name")
        if tag in _SYMBOLIC:
            return self._named(value, "as_name")
        if tag == "as_graph":
            inner = GraphNames(self.operators).graph(value["graph"])
            return {**value, "graph": inner}
        if tag == "as_string_to_argument":
            return {name: self.argument(each) for name, each in value.items()}
        return value

    def _named(self, value: Any, key: str) -> Any:
        if isinstance(value, list):
            return [self._named(each, key) for each in value]
        if not isinstance(value, dict):
            return value
        if isinstance(value.get(key), str):
            return {**value, key: self._number(value[key])}
        return {tag: self._named(each, key) for tag, each in value.items()}

    def _of_spec(self, value: Any) -> Any:
        return self._named(value, "name") if "name" in value else self.argument(value)

    def _node(self, node: Mapping[str, Any]) -> dict[str, Any]:
        self.operators.add(str(node["target"]))
        found = {key: value for key, value in node.items() if key != "name"}
        found["inputs"] = [{**each, "arg": self.argument(each["arg"])} for each in node["inputs"]]
        found["outputs"] = self.argument(node["outputs"])
        notes = node.get("metadata") or {}
        found["metadata"] = {key: value for key, value in notes.items() if key not in _NOTES}
        return found

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))
