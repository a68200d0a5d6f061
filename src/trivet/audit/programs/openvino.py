"""OpenVINO, with its ``CACHE_DIR``.

Where it will do, only the extension module is loaded: the package around it tells its maker of each
import, over the network, unless the user's home says not to, which is not that of the audit.
"""

from __future__ import annotations

import sys
from typing import Any

from trivet.audit.programs.inputs import ramp
from trivet.audit.programs.together import meet
from trivet.plans.backends.openvino_runtime import load_runtime


def plain(model: str) -> Any:
    """Without any cache."""
    return _run(load_runtime().Core(), model, {})


def answer(model: str, folder: str, mode: str = "", together: str = "", count: int = 1) -> Any:
    """With its cache in ``folder``; ``mode`` is ``CACHE_MODE``."""
    core = load_runtime().Core()
    properties = {"CACHE_DIR": folder}
    if mode:
        properties["CACHE_MODE"] = mode
    if together:
        meet(together, count)
    return _run(core, model, properties)


def convert(model: str, path: str) -> Any:
    """Write the model as IR: ``path`` and the ``.bin`` beside it."""
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # OpenVINO has a stand-in
    import openvino

    openvino.save_model(openvino.Core().read_model(model), path, compress_to_fp16=False)
    return {"path": path}


def _run(core: Any, model: str, properties: dict[str, str]) -> Any:
    compiled = core.compile_model(model, "CPU", properties)
    request = compiled.create_infer_request()
    given = {0: load_runtime().Tensor(ramp(compiled.input(0).shape))}
    (y,) = request.infer(given, False, True).values()
    return {"y": y.ravel().tolist(), "hit": bool(compiled.get_property("LOADED_FROM_CACHE"))}
