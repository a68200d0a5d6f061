"""Names and shapes of a model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trivet.errors import BackendError, ShapeError
from trivet.plans.model import Dimension


def reshaping(
    runtime: Any, ports: Sequence[Any], shapes: Mapping[str, tuple[Dimension, ...]]
) -> dict[int, Any]:
    """``shapes`` by position, as ``Model.reshape`` takes them. Sizes that are not numbers are free.

    Raises `ShapeError` for a name that is no input's.
    """
    aliases = [{*port.get_names(), _own_name(port)} for port in ports]
    wanted = {}
    for name, shape in shapes.items():
        found = [position for position, each in enumerate(aliases) if name in each]
        if not found:
            raise ShapeError(f"the model has no input {name!r}")
        sizes = [size if isinstance(size, int) else -1 for size in shape]
        wanted[found[0]] = runtime.PartialShape(sizes)
    return wanted


def port_names(ports: Sequence[Any], wanted: Sequence[str] = ()) -> list[str]:
    """One name for each port: one of ``wanted`` if the port has it, else OpenVINO's first."""
    names = []
    for port in ports:
        aliases = port.get_names()
        known = [name for name in wanted if name in aliases]
        names.append(known[0] if known else _own_name(port))
    return names


def refuse_forwarded_strings(outputs: Sequence[Any]) -> None:
    """Refuse string outputs that no operator packed.

    OpenVINO's CPU plug-in (seen in 2026.4.1) copies string objects byte by byte when it forwards
    them, and the process aborts when it frees them. ``outputs`` are those of the model as read: a
    compiled one does not know what its outputs are made of.
    """
    for port in outputs:
        if port.get_element_type().get_type_name() != "string":
            continue
        maker = port.get_node().input_value(0).get_node().get_type_name()  # a Result's only input
        if maker != "StringTensorPack":
            raise BackendError(
                f"a string output is forwarded by {maker}, which aborts the process in OpenVINO's "
                "CPU plug-in",
                hint="run this model with another backend",
            )


def _own_name(port: Any) -> str:
    """The first name in sorted order; a tensor without names goes by that of its node."""
    return str(min(port.get_names(), default=port.get_node().get_friendly_name()))
