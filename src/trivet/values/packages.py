"""Which modules a program brings itself, and which release the others are of."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys

PYTHON = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"
_INSTALLED = {"site-packages", "dist-packages"}


@functools.lru_cache(maxsize=4096)
def is_own(module: str) -> bool:
    """Whether neither Python nor a package brought it."""
    if _is_of_python(module):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or _INSTALLED.isdisjoint(os.path.realpath(file).split(os.sep))


@functools.lru_cache(maxsize=4096)
def release(module: str) -> str:
    """Name and version of the package that brought ``module``."""
    top = module.partition(".")[0]
    if _is_of_python(module):
        return PYTHON
    version = getattr(sys.modules.get(top), "__version__", None)
    if not isinstance(version, str):
        try:
            version = importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:
            version = ""
    return f"{top} {version}"


def _is_of_python(module: str) -> bool:
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names or top in sys.builtin_module_names
