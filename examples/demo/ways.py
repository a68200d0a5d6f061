"""The ways of getting from a model file to something that answers.

The rivals are what their own documentation offers, used as documented: nothing is made worse, and
no check is left out that a careful user would write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from examples.demo.jobs import Array, Job
from examples.demo.with_trivet import load_with_trivet

Run = Callable[[dict[str, Array]], dict[str, Array]]
THREADS = os.cpu_count() or 1


class Loaded(NamedTuple):
    """Something that answers, and whether this process compiled it."""

    run: Run
    compiled: bool


class Way(NamedTuple):
    """One row of the table."""

    backend: str
    title: str
    caches: bool
    load: Callable[[Job, Path, Path], Loaded]


def _ort_session(path: Path, **settings: str) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    if settings.pop("optimised", None):
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if target := settings.pop("save_to", None):
        options.optimized_model_filepath = target
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", f"{Path(target).name}.bin"
        )
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))


def _ort_plain(job: Job, model: Path, cache: Path) -> Loaded:
    return Loaded(_ort_session(model), compiled=True)


def _ort_saved(job: Job, model: Path, cache: Path) -> Loaded:
    """The optimised model, saved once, with external initialisers; redone when the model is newer.

    ONNX Runtime's CPU provider has no cache of its own; this is the script that people write.
    """
    cache.mkdir(parents=True, exist_ok=True)
    saved = cache / f"{job.name}.optimised.onnx"
    if saved.exists() and saved.stat().st_mtime >= model.stat().st_mtime:
        return Loaded(_ort_session(saved, optimised="yes"), compiled=False)
    return Loaded(_ort_session(model, save_to=str(saved)), compiled=True)


def _openvino(model: Path, cache: Path | None) -> Loaded:
    import openvino as ov

    core = ov.Core()
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
        core.set_property({"CACHE_DIR": str(cache)})
    compiled = core.compile_model(str(model), "CPU", {"INFERENCE_NUM_THREADS": THREADS})
    hit = bool(compiled.get_property("LOADED_FROM_CACHE"))
    names = [port.get_any_name() for port in compiled.outputs]

    def run(inputs: dict[str, Array]) -> dict[str, Array]:
        results = compiled(inputs)
        return {name: results[index] for index, name in enumerate(names)}

    return Loaded(run, compiled=not hit)


def _openvino_plain(job: Job, model: Path, cache: Path) -> Loaded:
    return _openvino(model, None)


def _openvino_cached(job: Job, model: Path, cache: Path) -> Loaded:
    return _openvino(model, cache)


def _ort_trivet(job: Job, model: Path, cache: Path) -> Loaded:
    return Loaded(*load_with_trivet("onnxruntime", job.shapes, model, cache, THREADS))


def _openvino_trivet(job: Job, model: Path, cache: Path) -> Loaded:
    return Loaded(*load_with_trivet("openvino", job.shapes, model, cache, THREADS))


WAYS = {
    "ort-plain": Way("ONNX Runtime", "no cache", False, _ort_plain),
    "ort-saved": Way("ONNX Runtime", "saved by hand", True, _ort_saved),
    "ort-trivet": Way("ONNX Runtime", "Trivet", True, _ort_trivet),
    "openvino-plain": Way("OpenVINO", "no cache", False, _openvino_plain),
    "openvino-cached": Way("OpenVINO", "its CACHE_DIR", True, _openvino_cached),
    "openvino-trivet": Way("OpenVINO", "Trivet", True, _openvino_trivet),
}
