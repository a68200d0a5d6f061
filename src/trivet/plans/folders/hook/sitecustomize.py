"""Runs at the start of every Python that ``trivet exec`` leads to, and reports what it did.

It stands alone: the program may run in an environment without Trivet. Nothing that goes wrong here
may reach the program. A report is one JSON file for each process, in ``TRIVET_EXEC_REPORTS``: the
frameworks' own counters, and the files that implement operators. It is written after every
compilation, so that it is there when a server is killed, and at the end.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.machinery import ModuleSpec
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_FOLDER = os.environ.get("TRIVET_EXEC_REPORTS", "")
_DELETED = " (deleted)"  # how the kernel marks a library whose file is gone
_jax: dict[str, float] = {}


def report(*_: object) -> None:
    """Write what is known now. An interpreter at its end may lack anything."""
    try:
        import json

        told = {"torch": _torch_counters(), "jax": _jax, "implementations": _implementations()}
        path = os.path.join(_FOLDER, f"{os.getpid()}.json")
        with open(path + ".part", "w") as file:
            json.dump(told, file)
        os.replace(path + ".part", path)
    except BaseException:  # noqa: BLE001
        pass


def _torch_counters() -> dict[str, float]:
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return {}
    counted = {
        name: int(utils.counters[group][name])
        for group, prefix in (("inductor", "fxgraph_cache_"), ("aot_autograd", "autograd_cache_"))
        for name in (prefix + "hit", prefix + "miss", prefix + "bypass")
    }
    seconds = utils.compilation_time_metrics.get("compile_fx_inner") or ()
    return {**counted, "compile_seconds": float(sum(seconds))}


def _implementations() -> list[str]:
    """Files whose code the frameworks' caches trust not to change: operators, loaded libraries."""
    found = set(_libraries())
    for function in _operator_functions():
        code = getattr(function, "__code__", None)
        if code is not None:
            found.add(os.path.abspath(code.co_filename))
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    inside = os.path.dirname(torch) + os.sep if torch else "\0"
    return sorted(
        path
        for path in found
        if (os.path.isfile(path) or path.endswith(_DELETED)) and not path.startswith(inside)
    )


def _operator_functions() -> Iterator[Any]:
    definitions = sys.modules.get("torch._library.custom_ops")
    for operator in list(getattr(definitions, "OPDEFS", {}).values()):
        for value in list(vars(operator).values()):
            yield from list(value.values()) if isinstance(value, dict) else (value,)
    registry = getattr(sys.modules.get("torch._library.simple_registry"), "singleton", None)
    for entry in list(getattr(registry, "_data", {}).values()):
        for kernel in getattr(getattr(entry, "fake_impl", None), "kernels", ()):
            yield getattr(kernel, "func", None)
    lowering = sys.modules.get("torch._inductor.lowering")
    yield from list(getattr(lowering, "user_lowerings", {}).values())


def _libraries() -> Iterator[str]:
    """Shared objects that the program brought itself, and those that it registered operators by."""
    import sysconfig

    ops = getattr(sys.modules.get("torch"), "ops", None)
    yield from map(str, getattr(ops, "loaded_libraries", ()))
    ours = os.path.dirname(_FOLDER)
    system = ["/usr", "/lib", "/lib32", "/lib64", os.path.join(sys.base_prefix, "lib")]
    places = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
    packages = ("site-packages", "dist-packages")  # an environment may stand upon another
    stacked = [each for each in sys.path if os.path.basename(each) in packages]
    installed = tuple(os.path.join(each, "") for each in [ours, *system, *places, *stacked])
    with open("/proc/self/maps", errors="surrogateescape") as maps:
        for line in maps:
            path = "/" + line.rstrip("\n").partition("/")[2]
            if ".so" in os.path.basename(path) and not path.startswith(installed):
                yield path


def _watch_torch(module: Any) -> None:
    module.callback_handler.register_end_callback(report)


def _watch_jax(module: Any) -> None:
    def event(name: str, **_: object) -> None:
        counted = name.rpartition("/")[2]
        if name.startswith("/jax/compilation_cache/"):
            _jax[counted] = _jax.get(counted, 0) + 1
            if counted == "cache_misses":
                report()

    def duration(name: str, seconds: float, **_: object) -> None:
        counted = name.rpartition("/")[2]
        if name.startswith("/jax/compilation_cache/"):
            _jax[counted] = _jax.get(counted, 0.0) + seconds

    module.register_event_listener(event)
    module.register_event_duration_secs_listener(duration)


_waiting = {"torch._dynamo.callback": _watch_torch, "jax._src.monitoring": _watch_jax}


class _Watch(importlib.abc.MetaPathFinder):
    """Calls something once a module was imported, whenever that is."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec that the finders after this one give, made to call."""
        then = _waiting.pop(name, None)
        spec = then and importlib.util.find_spec(name)
        if then is None or not spec or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            try:
                then(module)
            except Exception:  # noqa: BLE001
                _waiting.clear()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _next_sitecustomize() -> None:
    """Run the one that this one stands before."""
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if _FOLDER:
    sys.modules["trivet_exec_hook"] = sys.modules[__name__]
    sys.meta_path.insert(0, _Watch())
    atexit.register(report)
if __name__ == "sitecustomize":  # else a program loads it for itself, and has had the other
    _next_sitecustomize()
