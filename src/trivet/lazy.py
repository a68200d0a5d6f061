"""Names of a package that are loaded when they are first used.

A start that finds everything in the cache needs few modules, and importing the others would take a
good part of its time.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # importing typing would double the cost of `import trivet`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's ``__getattr__``: ``homes`` is name to submodule of ``package``."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return load
