"""What this process has loaded that frameworks' caches depend on; a part of `trivet_exec_hook`."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import types
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

RUN = os.environ.get("TRIVET_EXEC_RUN", "")
_TRIVET = os.path.join(os.path.abspath(__file__).rpartition("/plans/")[0], "")
IN_NO_FILE = "(in no file)"  # stands for what was typed, or given on a command line
_CODE = (types.FunctionType, types.MethodType, staticmethod, classmethod, functools.partial)
_LOOKS = 1000  # at what a function wraps and closes over
_own: dict[str, bool] = {}
_files: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


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
                nameless = len(path) == 1 or path.startswith(("/memfd:", "/dev/"))
                if not nameless and not _is_output(path):
                    yield path


def _is_output(path: str) -> bool:
    """Whether a framework compiled it, into our folder or its own."""
    return path.startswith(RUN) or "/torchinductor_" in path or "/.triton/cache/" in path


def _operator_files(operators: set[str]) -> set[str]:
    found = set(operators)
    for function in _operator_functions():
        found |= files_of(function)
    return {path for path in found if path == IN_NO_FILE or os.path.isfile(path)}


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


def files_of(function: Any) -> set[str]:
    """Where the code is that a call of ``function`` may run: its own, and that of what it wraps or
    closes over, as decorators and PyTorch's own registrations do."""
    try:
        known = _files.get(function)
        if known is None:
            known = _files[function] = _find_files(function)
    except TypeError:  # it can't be remembered
        known = _find_files(function)
    return known


def _find_files(function: Any) -> set[str]:
    found: set[str] = set()
    seen: set[int] = set()
    todo = [function]
    while todo and len(seen) < _LOOKS:
        each = todo.pop()
        if id(each) not in seen:
            seen.add(id(each))
            if isinstance(each, types.FunctionType):
                found.add(_file_of(each))
            todo += _inside(each)
    return found


def _file_of(function: types.FunctionType) -> str:
    path = os.path.abspath(function.__code__.co_filename)
    if _is_file(path):
        return path
    # Made by exec, as methods of dataclasses are; it belongs to the module that did it.
    module = function.__globals__
    if "__file__" not in module:
        return IN_NO_FILE if module.get("__name__") == "__main__" else path
    path = os.path.abspath(module["__file__"])
    return path if _is_file(path) else IN_NO_FILE


_is_file = functools.cache(os.path.isfile)


def _inside(each: Any) -> Iterator[Any]:
    if isinstance(each, functools.partial):
        yield each.func
    elif isinstance(each, (types.MethodType, staticmethod, classmethod)):
        yield each.__func__
    elif not isinstance(each, types.ModuleType):
        parts = getattr(each, "__dict__", None) or {}
        yield from [part for part in list(parts.values()) if isinstance(part, _CODE)]
        call = getattr(type(each), "__call__", None)  # noqa: B004
        if isinstance(call, types.FunctionType):
            yield call
        for cell in getattr(each, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # not set yet
                yield cell.cell_contents


def operators_before(library: Any) -> set[str]:
    """Where operators may come from that a dispatcher was given before anybody noted from where.

    It tells who opened the library that an operator is in, not who implements it: where the program
    did, any of its modules may. Packages implement what they open themselves.

    Args:
        library: the module ``torch.library``.
    """
    from torch import _C

    opened: set[str] = set()
    for name in {each.rpartition("/")[0].replace("/", "::", 1) for each in list(library._impls)}:
        with contextlib.suppress(RuntimeError):
            opened.update(re.findall(r"registered at (.+):\d+", _C._dispatch_dump(name)))
    opened = {path for path in opened if _is_python(path)}
    found = {path if os.path.isfile(path) else IN_NO_FILE for path in opened}
    if not any(path == IN_NO_FILE or is_own(path) for path in found):
        return set()
    modules = [getattr(each, "__file__", None) for each in list(sys.modules.values())]
    return {*found, *(os.path.abspath(each) for each in modules if each and is_own(each))}


def _is_python(path: str) -> bool:
    """Not C++, as it lay where it was built."""
    return path.endswith(".py") or path.startswith("<")


def is_own(path: str) -> bool:
    """Whether the program brings the file itself: no package installed it."""
    if path not in _own:  # asked again and again, before everything that is written
        _own[path] = _is_own(path)
    return _own[path]


def _is_own(path: str) -> bool:
    # Programs are brought to other places below /usr: to /usr/src/app, as images do, or /usr/local.
    places = ["/lib", "/lib32", "/lib64", os.path.join(sys.base_prefix, "lib")]
    places += ["/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec"]
    places += ["/usr/local/lib", "/usr/local/lib64", "/usr/local/nvidia"]
    if path in (sys.executable, os.path.realpath(sys.executable)):
        return False
    if path.startswith(("/usr/local/cuda", _TRIVET)) or _is_output(path):
        return False
    # Not by sysconfig, whose import costs more than the rest of this.
    places += [each for each in sys.path if isinstance(each, str) and "-packages" in each]
    return not path.startswith(tuple(os.path.join(each, "") for each in places))
