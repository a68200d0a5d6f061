"""Plans under test: small models, one answer from one process, and processes that give them.

`answer` is what a serving process does: open the cache, load the plan, run it once. `Server` is a
process that has its framework imported and gives every answer in a forked child of its own, so that
hundreds of answers by fresh processes take seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import onnx
from tests.support import onnx_models
from tests.support.engine import SOURCE

from trivet.cache import Cache
from trivet.events import Event, EventKind
from trivet.plans.backend import Backend
from trivet.plans.backends import OnnxRuntime, OpenVino
from trivet.plans.plan import Plan
from trivet.plans.plans import Plans
from trivet.plans.shapes import Shapes

ROOT = Path(__file__).parents[2]
BACKENDS = ("onnxruntime", "openvino")

BUILDERS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "mlp": onnx_models.mlp,
    "conv_net": lambda: onnx_models.conv_net(size=8),
    "dynamic_batch": onnx_models.dynamic_batch,
    "with_if": onnx_models.with_if,
}


def make_backend(name: str, **options: Any) -> Backend:
    """A backend that gives the same numbers on every machine, as far as it can."""
    if name == "onnxruntime":
        return OnnxRuntime(**{"threads": 1, **options})
    return OpenVino(**{"threads": 1, "precision": "f32", **options})


class Wrapped:
    """A backend that does all that ``backend`` does, until a subclass says otherwise."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def ir_model(folder: Path, proto: onnx.ModelProto, name: str = "model") -> Path:
    """The model as OpenVINO IR, by OpenVINO itself: ``name.xml`` and ``name.bin``."""
    import openvino

    folder.mkdir(parents=True, exist_ok=True)
    source = onnx_models.save(proto, folder / f"{name}-source.onnx")
    path = folder / f"{name}.xml"
    openvino.save_model(openvino.Core().read_model(str(source)), str(path), compress_to_fp16=False)
    source.unlink()
    return path


def mlp_answer(proto: onnx.ModelProto, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What `onnx_models.mlp` computes, by NumPy."""
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer}
    for layer in range(len(weights) // 2):
        x = np.maximum(x @ weights[f"w{layer}"] + weights[f"b{layer}"], 0)
    return x


def mlp_input(batch: int = 4, width: int = 16) -> np.ndarray[Any, Any]:
    """Some input of `onnx_models.mlp`."""
    return np.linspace(-1, 1, batch * width, dtype=np.float32).reshape(batch, width)


def inputs_of(plan: Plan, free: int = 3) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs for any plan; sizes left open are ``free``."""
    made = {}
    for each in plan.inputs:
        sizes = [size if isinstance(size, int) else free for size in each.shape or ()]
        ramp = np.linspace(-1, 1, int(np.prod(sizes)), dtype=np.float32).reshape(sizes)
        made[each.name] = np.asarray(ramp > 0 if each.dtype == "bool" else ramp, each.dtype)
    return made


def answer(
    folder: str | Path,
    model: str | Path,
    backend: str = "onnxruntime",
    *,
    rules: str = "",
    free: int = 3,
    options: Mapping[str, Any] | None = None,
    release: str = "",
    strict: bool = False,
    on_failure: str = "fallback",
    environment: Mapping[str, str] | None = None,
    disk_bytes: int = 1 << 30,
) -> dict[str, Any]:
    """Load ``model`` through the cache in ``folder`` and run it once; what happened, as JSON."""
    events: list[Event] = []
    with Cache.open(folder, strict=strict, sink=events.append, disk_bytes=disk_bytes) as cache:
        plans = Plans(
            cache,
            make_backend(backend, **(options or {})),
            release=release,
            on_failure=on_failure,  # type: ignore[arg-type]
            environment=environment,
        )
        plan = plans.load(model, Shapes(rules) if rules else None)
        outputs = plan.run(inputs_of(plan, free))
        return {
            "source": str(plan.source),
            "reason": plan.loaded.reason,
            "error": plan.loaded.error,
            "key": plan.loaded.key.digest.hex(),
            "y": outputs["y"].astype(np.float64).ravel().tolist(),
            "quarantined": [e.detail for e in events if e.kind is EventKind.QUARANTINED],
            "misses": [
                str(e.reason) for e in events if e.kind is EventKind.MISS and e.space == "plan/1"
            ],
            "trouble": [e.detail for e in events if e.kind is EventKind.TIER_FAILED],
        }


def close(found: Mapping[str, Any], expected: np.ndarray[Any, Any]) -> bool:
    """Whether an `answer` holds the expected numbers."""
    return np.allclose(found["y"], expected.ravel(), rtol=1e-4, atol=1e-4)


def child(
    job: str, *arguments: Any, prefix: tuple[str, ...] = (), **environment: str
) -> subprocess.Popen[str]:
    """A new process that calls the function ``job`` (``module:name``) and prints its result."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", _CALL, job, json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{ROOT}", **environment},
    )


_CALL = """
import importlib, json, sys
module, _, name = sys.argv[1].partition(":")
function = getattr(importlib.import_module(module), name)
*positional, named = json.loads(sys.argv[2])
print(json.dumps(function(*positional, **named)), flush=True)
"""


def result(process: subprocess.Popen[str], seconds: float = 120.0) -> Any:
    """What the process's function returned; fails when the process did."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
    return json.loads(out.splitlines()[-1])


def answer_elsewhere(
    *arguments: Any,
    prefix: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    **named: Any,
) -> dict[str, Any]:
    """`answer` by a new process."""
    positional = [str(each) if isinstance(each, Path) else each for each in arguments]
    process = child(
        "tests.support.cases:answer", *positional, named, prefix=prefix, **dict(env or {})
    )
    found: dict[str, Any] = result(process, 300)
    return found


class Server:
    """A process that gives each answer in a forked child of its own.

    It imports the framework and runs nothing, so that a fork copies no threads.
    """

    def __init__(self, backend: str = "onnxruntime") -> None:
        self._process = child("tests.support.cases:serve", backend, {})
        self._ask(None)

    def answer(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        """`answer` by a forked child; ``{"exit": status}`` when the child did not get that far."""
        return self._ask([[str(each) for each in arguments], named])

    def _ask(self, request: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._process.communicate()[1]
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=60)


def serve(backend: str) -> None:
    """The loop of `Server`'s process."""
    make_backend(backend).warm_import()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({} if request is None else _forked(*request)), flush=True)


def _forked(arguments: list[str], named: dict[str, Any]) -> dict[str, Any]:
    return Forked(lambda: answer(*arguments, **named)).result()


class Forked:
    """A forked child that does ``work`` and ends. Only for processes that run no threads.

    Attributes:
        pid: of the child.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reader)
            try:
                found = work()
            except BaseException as error:  # noqa: BLE001  the parent reports it
                found = {"raised": f"{type(error).__name__}: {error}"}
            with os.fdopen(writer, "w") as out:
                out.write(json.dumps(found))
            os._exit(0)
        os.close(writer)

    def result(self) -> Any:
        """What ``work`` returned; ``{"raised": ...}``, or ``{"exit": status}`` when it died."""
        with os.fdopen(self._reader) as pipe:
            text = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return json.loads(text) if status == 0 else {"exit": status}
