"""Which modules a program brings itself, and which release the others are of."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import sys

from trivet.errors import Unkeyable
from trivet.keys import FieldValue

PYTHON = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"
_INSTALLED = {"site-packages", "dist-packages"}


@functools.lru_cache(maxsize=4096)
def is_own(module: str) -> bool:
    """Whether neither Python nor a package brought it."""
    if _is_of_python(module):
        return False
    file = _file(module)
    return file is None or _INSTALLED.isdisjoint(os.path.realpath(file).split(os.sep))


@functools.lru_cache(maxsize=4096)
def release(module: str) -> str:
    """Name and version of what brought ``module``, which is not the program's own.

    Raises `Unkeyable` where nobody says which release it is.
    """
    if _is_of_python(module):
        return PYTHON
    top = module.partition(".")[0]
    for name in (top, *_distributions().get(top, ())):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    version = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(version, str):
        return f"{top} {version}"
    raise Unkeyable(f"nobody says which release of {top} is installed")


def state_of(module: str) -> FieldValue:
    """`release`, with what the program has set in the package that changes what it computes."""
    torch = sys.modules.get("torch") if module.partition(".")[0] == "torch" else None
    if torch is None:
        return release(module)
    from trivet.values.adapters.torch import numerics

    return (release(module), *numerics())


@functools.cache
def _distributions() -> dict[str, list[str]]:
    """By the names of their modules, of which some differ: ``yaml`` is of PyYAML."""
    return {
        name: sorted(set(each))
        for name, each in importlib.metadata.packages_distributions().items()
    }


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
    return top in sys.stdlib_module_names or top in sys.builtin_module_names
