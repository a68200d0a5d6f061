"""The programs that the start-up benchmarks compare, each run in a new process.

Every program loads one model and runs it once on the same inputs, and prints two numbers: the
milliseconds from the start of the load until the model was ready, and the first output.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from models import bert_base, resnet50

INPUTS = """
import sys, time
import numpy as np
def inputs(names):
    if "x" in names:
        ramp = np.arange(3 * 224 * 224, dtype=np.float32).reshape(1, 3, 224, 224)
        return {"x": ramp % 7 / 7}
    ids = np.arange(1, 129, dtype=np.int64).reshape(1, 128)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}
def done(ready, outputs):
    first = np.asarray(next(iter(outputs))).ravel()[:8]
    print(round(ready * 1e3, 3), *(f"{each:.3f}" for each in first))
"""

ORT_PLAIN = (
    INPUTS
    + """
import onnxruntime
start = time.perf_counter()
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
ready = time.perf_counter() - start
done(ready, session.run(None, inputs({each.name for each in session.get_inputs()})))
"""
)

ORT_SAVE = """
import sys
import onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
options.optimized_model_filepath = sys.argv[2] + "/model.onnx"
for key, value in (
    ("session.optimized_model_external_initializers_file_name", "weights.bin"),
    ("session.optimized_model_external_initializers_min_size_in_bytes", "1024"),
    ("session.save_external_prepacked_constant_initializers", sys.argv[3]),
):
    options.add_session_config_entry(key, value)
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""

ORT_SAVED = (
    INPUTS
    + """
import onnxruntime
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
start = time.perf_counter()
session = onnxruntime.InferenceSession(
    sys.argv[2] + "/model.onnx", options, providers=["CPUExecutionProvider"]
)
ready = time.perf_counter() - start
done(ready, session.run(None, inputs({each.name for each in session.get_inputs()})))
"""
)

OPENVINO_PLAIN = (
    INPUTS
    + """
import openvino
core = openvino.Core()
start = time.perf_counter()
model = core.compile_model(sys.argv[1], "CPU")
ready = time.perf_counter() - start
done(ready, model(inputs({each.any_name for each in model.inputs})).values())
"""
)

OPENVINO_CACHED = (
    INPUTS
    + """
import openvino
core = openvino.Core()
core.set_property({"CACHE_DIR": sys.argv[2]})
start = time.perf_counter()
model = core.compile_model(sys.argv[1], "CPU")
ready = time.perf_counter() - start
done(ready, model(inputs({each.any_name for each in model.inputs})).values())
"""
)

TRIVET = (
    INPUTS
    + """
from trivet import Cache
from trivet.plans import Plans
from trivet.plans.backends import OnnxRuntime, OpenVino
backend = {"onnxruntime": OnnxRuntime, "openvino": OpenVino}[sys.argv[3]]()
if sys.argv[4] == "import first":
    backend.warm_import()
start = time.perf_counter()
plan = Plans(Cache.open(sys.argv[2], strict=True), backend).load(sys.argv[1])
ready = time.perf_counter() - start
done(ready, plan.run(inputs({each.name for each in plan.inputs})).values())
"""
)

IMPORT_ONLY = {
    "onnxruntime": INPUTS + "import onnxruntime",
    "openvino": INPUTS + "import openvino\nopenvino.Core()",
}


def build_models(folder: Path) -> dict[str, Path]:
    """ResNet-50 (102 MB) and a BERT-base encoder (438 MB), made by script with random weights."""
    models = {"ResNet-50": folder / "resnet50.onnx", "BERT-base": folder / "bert_base.onnx"}
    for name, build in (("ResNet-50", resnet50), ("BERT-base", bert_base)):
        if not models[name].exists():
            build(models[name])
    return models
