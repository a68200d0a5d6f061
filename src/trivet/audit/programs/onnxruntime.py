"""ONNX Runtime, with its saved optimised model as the cache that its documentation offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trivet.audit.programs.inputs import ramp
from trivet.audit.programs.together import tell_and_wait

UNPACKED = "session.disable_prepacking"  # weights are used where they are mapped


def plain(model: str) -> Any:
    """Without any cache."""
    return _run(model, _options())


def answer(model: str, saved: str) -> Any:
    """From the saved optimised model, where there is one; else it is saved."""
    import onnxruntime as ort

    options = _options()
    if Path(saved).exists():
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return {**_run(saved, options), "hit": True}
    _save_to(options, saved)
    return {**_run(model, options), "hit": False}


def save(model: str, saved: str) -> Any:
    """Save it anew, whatever is there."""
    options = _options()
    _save_to(options, saved)
    return _run(model, options)


def serve(saved: str, ready: str, go: str) -> Any:
    """A server on the saved model: it answers once, and once more when ``go`` is there."""
    import onnxruntime as ort

    options = _options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(UNPACKED, "1")
    session = ort.InferenceSession(saved, options, providers=["CPUExecutionProvider"])
    first = _answer(session)
    tell_and_wait(ready, go)
    return {"first": first, "y": _answer(session), "hit": True}


def unknown_key(model: str, folder: str) -> Any:
    """With options that are said to switch a compile cache on."""
    options = _options()
    options.add_session_config_entry("session.compile_allow_cache", "1")
    options.add_session_config_entry("session.cache_path", folder)
    return {**_run(model, options), "files": len(list(Path(folder).iterdir()))}


def _options() -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options


def _save_to(options: Any, saved: str) -> None:
    options.optimized_model_filepath = saved
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_file_name", Path(saved).stem + ".bin"
    )
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_min_size_in_bytes", "1024"
    )


def _run(model: str, options: Any) -> Any:
    import onnxruntime as ort

    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return {"y": _answer(session)}


def _answer(session: Any) -> list[float]:
    (given,) = session.get_inputs()
    numbers: list[float] = session.run(None, {given.name: ramp(given.shape)})[0].ravel().tolist()
    return numbers
