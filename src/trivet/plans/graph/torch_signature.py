"""Inputs and outputs of an exported PyTorch program: names, types, shapes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from trivet.errors import ModelError
from trivet.plans.model import Dimension, TensorInfo

DTYPES = {
    **{1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64"},
    **{6: "float16", 7: "float32", 8: "float64", 12: "bool", 13: "bfloat16"},
    **{9: "complex32", 10: "complex64", 11: "complex128"},
    **{28: "uint16", 34: "uint32", 35: "uint64"},
    **{29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz"},
    **{32: "float8_e5m2fnuz", 33: "float8_e8m0fnu"},
}
_SYMBOL = re.compile(r"Symbol\('(\w+)'(?:, \w+=\w+)*\)")


def inputs_of(module: dict[str, Any]) -> tuple[TensorInfo, ...]:
    """The tensors that a caller gives, in the order of the graph. Raises `ModelError` for others.

    They go by the names of the exported function's parameters; a tensor inside a list or a dict by
    the name that the exporter made of it, such as ``x_0``.
    """
    found = []
    for spec in module["signature"]["input_specs"]:
        if "user_input" not in spec:
            continue
        argument = spec["user_input"]["arg"]
        if "as_tensor" not in argument:
            raise ModelError(
                f"an input is no tensor but {_tag(argument)}",
                hint="give numbers as tensors, or as constants when the model is exported",
            )
        found.append(_tensor(module, argument["as_tensor"]["name"], ""))
    return tuple(found)


def outputs_of(module: dict[str, Any]) -> tuple[TensorInfo, ...]:
    """The tensors that a caller gets. Raises `ModelError` for anything else.

    An output goes by its keys in what the exported function returns: ``logits`` in a dict,
    ``output_0`` in a tuple, ``hidden.1`` in a tuple in a dict; a tensor alone is ``output``.
    """
    given = [
        spec["user_output"]["arg"]
        for spec in module["signature"]["output_specs"]
        if "user_output" in spec
    ]
    paths = list(_paths(_out_spec(module), ""))
    if len(paths) != len(given):
        raise ModelError(f"the program has {len(given)} outputs for {len(paths)} places")
    found = []
    for argument, path in zip(given, paths, strict=True):
        name = f"output_{path}" if path[:1].isdigit() else path or "output"
        if "as_tensor" not in argument:
            raise ModelError(
                f"output {name!r} is no tensor but {_tag(argument)}",
                hint="return tensors only when the model is exported",
            )
        found.append(_tensor(module, argument["as_tensor"]["name"], name))
    if len({each.name for each in found}) != len(found):
        raise ModelError("two outputs have the same name")
    return tuple(found)


def dimension(size: dict[str, Any]) -> Dimension:
    """A ``SymInt`` of the export schema: a number, a symbol, or an expression as text."""
    if "as_int" in size:
        return int(size["as_int"])
    text = str(size["as_expr"]["expr_str"])
    return _SYMBOL.sub(r"\1", text)


def _tensor(module: dict[str, Any], value: str, name: str) -> TensorInfo:
    meta = module["graph"]["tensor_values"][value]
    code = meta["dtype"]
    return TensorInfo(
        name or value,
        DTYPES.get(code, f"torch-{code}"),
        tuple(dimension(size) for size in meta["sizes"]),
    )


def _tag(argument: dict[str, Any]) -> str:
    return next(iter(argument), "nothing").removeprefix("as_")


def _out_spec(module: dict[str, Any]) -> Any:
    for entry in module["module_call_graph"]:
        if entry["fqn"] == "" and entry["signature"]:
            return json.loads(entry["signature"]["out_spec"])[1]
    raise ModelError("the program does not say what it returns")


def _paths(spec: dict[str, Any], path: str) -> Iterator[str]:
    """Keys of every leaf of a serialised pytree, joined by dots."""
    if spec["type"] is None:
        yield path
        return
    children = spec["children_spec"]
    keys = _keys(spec["context"], len(children))
    for key, child in zip(keys, children, strict=True):
        yield from _paths(child, f"{path}.{key}" if path else key)


def _keys(context: Any, count: int) -> list[str]:
    """Names of a node's children, where its context is a list of as many; else numbers."""
    try:
        names = json.loads(context) if isinstance(context, str) else context
    except ValueError:
        names = None
    if isinstance(names, list) and len(names) == count and all(isinstance(n, str) for n in names):
        return names
    return [str(index) for index in range(count)]
