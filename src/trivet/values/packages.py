"""Which modules a program brings itself, and which release the others are of."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
import types
from typing import Any

from trivet.errors import Unkeyable
from trivet.keys import FieldValue

PYTHON = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"
_MADE_AT_RUN_TIME = 1 << 9  # Py_TPFLAGS_HEAPTYPE: other types are compiled in
_LIBRARIES = {
    os.path.join(os.path.realpath(sysconfig.get_path(name)), "")
    for name in ("stdlib", "platstdlib")
}
_INSTALLED = {"site-packages", "dist-packages"}


@functools.lru_cache(maxsize=4096)
def is_own(module: str | None) -> bool:
    """Whether neither Python nor a package brought it; None is the module of what `exec` made."""
    if module is None or _is_of_python(module):
        return module is None
    file = _file(module)
    return file is None or _INSTALLED.isdisjoint(os.path.realpath(file).split(os.sep))


def is_brought(thing: Any) -> bool:
    """Whether Python or a package has a function or class under its name, so that the release says
    all of it. What they make when the program runs has more to it: what it was made of."""
    if is_own(thing.__module__):
        return False
    is_compiled = isinstance(thing, type) and not thing.__flags__ & _MADE_AT_RUN_TIME
    if is_compiled or not isinstance(thing, (type, types.FunctionType)):
        return True
    found: object = sys.modules.get(thing.__module__)
    for name in thing.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is thing


def module_of(thing: Any) -> str:
    """That of a function or class, the same in the processes that `multiprocessing` spawns."""
    name: str = thing.__module__
    return "__main__" if name == "__mp_main__" else name


@functools.lru_cache(maxsize=4096)
def release(module: str) -> str:
    """Name and version of what brought ``module``, which is not the program's own.

    Raises `Unkeyable` where nobody says which release it is.
    """
    if _is_of_python(module):
        return PYTHON
    top = module.partition(".")[0]
    # Several where they share a namespace, as those of google do.
    names = sorted({each.metadata["Name"] for each in _distributions().get(top, ())}) or [top]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    version = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(version, str):
        return f"{top} {version}"
    raise Unkeyable(f"nobody says which release of {top} is installed")


def has_settings(module: str) -> bool:
    """Whether what `state_of` says of it may change while the program runs."""
    return module.partition(".")[0] == "torch"


def state_of(module: str) -> FieldValue:
    """`release`, with what the program has set in the package that changes what it computes."""
    torch = sys.modules.get("torch") if has_settings(module) else None
    if torch is None:
        return release(module)
    from trivet.values.adapters.torch import numerics

    return (release(module), *numerics())


@functools.cache
def _distributions() -> dict[str, list[importlib.metadata.Distribution]]:
    """By the names of their modules, of which some differ: ``yaml`` is of PyYAML.

    As `importlib.metadata.packages_distributions` finds them, in a tenth of its time, which the
    first call of every process would wait for.
    """
    found: dict[str, list[importlib.metadata.Distribution]] = {}
    for each in importlib.metadata.distributions():
        names = (each.read_text("top_level.txt") or "").split()
        if not names:
            lines = (each.read_text("RECORD") or "").splitlines()
            tops = {line.lstrip('"').partition(",")[0].partition("/")[0] for line in lines}
            names = [name.partition(".")[0] for name in tops]
        for name in {*names}:
            found.setdefault(name, []).append(each)
    return found


def _file(module: str) -> str | None:
    loaded = sys.modules.get(module)
    if loaded is not None:
        return getattr(loaded, "__file__", None)
    found = importlib.util.find_spec(module.partition(".")[0])  # imports nothing
    if found is None:
        return None
    places = found.submodule_search_locations
    return found.origin or next(iter(places or ()), None)


def _is_of_python(module: str) -> bool:
    top = module.partition(".")[0]
    if top not in sys.stdlib_module_names and top not in sys.builtin_module_names:
        return False
    file = _file(module)  # as a program may have a code.py or a profile.py of its own
    return file in (None, "built-in", "frozen") or any(
        os.path.realpath(str(file)).startswith(each) for each in _LIBRARIES
    )
