"""What this process has loaded that frameworks' caches depend on; a part of `trivet_exec_hook`."""

from __future__ import annotations

import functools
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

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


def mapped() -> Iterator[str]:
    """Files that are mapped as code."""
    with open("/proc/self/maps", errors="surrogateescape") as maps:
        for line in maps:
            if line.split(None, 2)[1][2] == "x":
                path = "/" + line.rstrip("\n").partition("/")[2]
                if not path.startswith(("/memfd:", "/dev/", RUN)) and len(path) > 1:
                    yield path


def is_own(path: str) -> bool:
    """Whether the program brings the file itself: no package installed it."""
    if path not in _own:  # asked again and again, before everything that is written
        _own[path] = _is_own(path)
    return _own[path]


def _is_own(path: str) -> bool:
    # Not by sysconfig, whose import costs more than the rest of this.
    packages = (each for each in sys.path if isinstance(each, str) and "-packages" in each)
    if path.startswith(("/usr/local/cuda", *_installed(tuple(packages)))):
        return False
    return path not in (sys.executable, os.path.realpath(sys.executable))


@functools.cache
def _installed(packages: tuple[str, ...]) -> tuple[str, ...]:
    # Programs are brought to other places below /usr: to /usr/src/app, as images do, or /usr/local.
    places = ["/lib", "/lib32", "/lib64", os.path.join(sys.base_prefix, "lib"), RUN]
    places += ["/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec"]
    places += ["/usr/local/lib", "/usr/local/lib64", "/usr/local/nvidia", *packages]
    return tuple(os.path.join(each, "") for each in places)
