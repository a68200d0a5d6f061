"""OpenVINO, with its ``CACHE_DIR``."""

from __future__ import annotations

from typing import Any

from trivet.audit.programs.inputs import ramp
from trivet.audit.programs.together import meet


def plain(model: str) -> Any:
    """Without any cache."""
    import openvino

    return _run(openvino.Core(), model, {})


def answer(model: str, folder: str, mode: str = "", together: str = "", count: int = 1) -> Any:
    """With its cache in ``folder``; ``mode`` is ``CACHE_MODE``."""
    import openvino

    core = openvino.Core()
    properties = {"CACHE_DIR": folder}
    if mode:
        properties["CACHE_MODE"] = mode
    if together:
        meet(together, count)
    return _run(core, model, properties)


def convert(model: str, path: str) -> Any:
    """Write the model as IR: ``path`` and the ``.bin`` beside it."""
    import openvino

    openvino.save_model(openvino.Core().read_model(model), path, compress_to_fp16=False)
    return {"path": path}


def _run(core: Any, model: str, properties: dict[str, str]) -> Any:
    compiled = core.compile_model(model, "CPU", properties)
    y = compiled(ramp(compiled.input(0).shape))[0].ravel().tolist()
    return {"y": y, "hit": bool(compiled.get_property("LOADED_FROM_CACHE"))}
