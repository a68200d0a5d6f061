"""Runs at the start of every Python that ``trivet exec`` leads to.

It stands alone: the program may run in an environment without Trivet. It does nothing but look out
for the imports of frameworks; the rest, `trivet_exec_hook`, is loaded when one comes. Nothing
that goes wrong here may reach the program.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
# Each leads to the guard of what it compiles, before it is imported.
FRAMEWORKS = ("cupy", "jax", "libneuronxla", "neuronxcc", "torch", "triton", "vllm")
# Each is watched after it was imported, by the function of this name.
WATCHED = {
    "jax._src.monitoring": "watch_jax",
    "torch._dynamo.backends.registry": "watch_backends",
    "torch._dynamo.callback": "watch_compiling",
    "torch._inductor.codecache": "watch_headers",
    "torch.library": "watch_operators",
    "triton.runtime.jit": "watch_kernels",
}


def _hook() -> Any:
    if "trivet_exec_hook" not in sys.modules:
        sys.path.insert(0, _HERE)
        try:
            __import__("trivet_exec_hook")
        finally:
            sys.path.remove(_HERE)
    return sys.modules["trivet_exec_hook"]


class _Watch:
    """Stands before all finders of modules."""

    def __init__(self) -> None:
        self._frameworks = set(FRAMEWORKS)
        self._watched = dict(WATCHED)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """None, for the finders after this one; or what they give, made to call `WATCHED`."""
        if name in self._frameworks:
            self._frameworks.discard(name)
            try:
                _hook().enter(name)
            except Exception:  # noqa: BLE001
                self._watched.clear()
        if name not in self._watched:
            return None
        spec = self._after(name, path, target)
        if spec is not None and spec.loader is not None:
            self._call(spec.loader, self._watched.pop(name))
        return spec

    def _after(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        for finder in sys.meta_path:
            found = finder is not self and finder.find_spec(name, path, target)
            if found:
                return found
        return None

    def _call(self, loader: Any, function: str) -> None:
        execute: Callable[[Any], None] = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            _hook().watch(function, module)

        loader.exec_module = exec_module


def _next_sitecustomize() -> None:
    """Run the one that this one stands before."""
    from importlib import _bootstrap, _bootstrap_external

    sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != _HERE]
    spec = _bootstrap_external.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = _bootstrap.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("TRIVET_EXEC_RUN"):
    sys.meta_path.insert(0, _Watch())
    if os.environ.get("TRIVET_EXEC_DECLARED"):
        try:
            _hook().enter("")
        except Exception:  # noqa: BLE001
            del sys.meta_path[0]
if __name__ == "sitecustomize":  # else a program guards itself, and has had the other one
    _next_sitecustomize()
