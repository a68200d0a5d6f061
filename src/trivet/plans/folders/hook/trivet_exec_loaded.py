"""What this process has loaded that frameworks' caches depend on; a part of `trivet_exec_hook`."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

RUN = os.environ.get("TRIVET_EXEC_RUN", "")
_own: dict[str, bool] = {}


def torch_counters() -> dict[str, float]:
    """What PyTorch's caches counted so far."""
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


def vllm_counters() -> dict[str, float]:
    """What vLLM loaded from its own cache so far, and what it compiled all the same."""
    module = sys.modules.get("vllm.compilation.counter")
    counter = getattr(module, "compilation_counter", None)
    names = ("num_aot_artifacts_loaded", "num_compiled_artifacts_loaded", "num_aot_compiles",
             "num_inductor_compiles")  # fmt: skip
    found: dict[str, float] = {name: int(getattr(counter, name, 0)) for name in names}
    return found if any(found.values()) else {}


class Loads:
    """Asks the loader how often it loaded a library into this process: see dl_iterate_phdr(3)."""

    def __init__(self) -> None:
        """Raises `ImportError` and `AttributeError` where it can't be asked."""
        import ctypes

        self._count = count = ctypes.c_ulonglong(0)
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

        def first(about: int, size: int, _: int) -> int:
            # After an address, two pointers and a half word.
            count.value = ctypes.c_ulonglong.from_address(about + 32).value if size >= 48 else 0
            return 1  # no need to see the others

        self._first = kind(first)
        self._visit = ctypes.CDLL(None).dl_iterate_phdr

    def count(self) -> int:
        self._visit(self._first, None)
        return self._count.value


def implementations(operators: set[str]) -> list[str]:
    """Files whose code the frameworks' caches trust not to change, sorted.

    What is mapped as code, and the modules that define operators; ``operators`` are more of these.
    """
    return sorted({*_mapped(), *_operator_files(operators)})


def _mapped() -> Iterator[str]:
    with open("/proc/self/maps", errors="surrogateescape") as maps:
        for line in maps:
            if line.split(None, 2)[1][2] == "x":
                path = "/" + line.rstrip("\n").partition("/")[2]
                if not path.startswith(("/memfd:", "/dev/", RUN)) and len(path) > 1:
                    yield path


def _operator_files(operators: set[str]) -> set[str]:
    found = set(operators)
    for function in _operator_functions():
        code = getattr(function, "__code__", None)
        if code is not None:
            found.add(os.path.abspath(code.co_filename))
    return {path for path in found if os.path.isfile(path)}


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


def is_own(path: str) -> bool:
    """Whether the program brings the file itself: no package installed it."""
    if path not in _own:  # asked again and again, before everything that is written
        _own[path] = _is_own(path)
    return _own[path]


def _is_own(path: str) -> bool:
    # Programs are brought to other places below /usr: to /usr/src/app, as images do, or /usr/local.
    places = ["/lib", "/lib32", "/lib64", os.path.join(sys.base_prefix, "lib"), RUN]
    places += ["/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec"]
    places += ["/usr/local/lib", "/usr/local/lib64", "/usr/local/nvidia"]
    if path in (sys.executable, os.path.realpath(sys.executable)):
        return False
    if path.startswith("/usr/local/cuda"):
        return False
    # Not by sysconfig, whose import costs more than the rest of this.
    places += [each for each in sys.path if isinstance(each, str) and "-packages" in each]
    return not path.startswith(tuple(os.path.join(each, "") for each in places))
