"""Custom operators: files that register them, and the contract that a plan was compiled for."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.errors import BackendError

_lock = threading.RLock()
_loaded: set[Path] = set()


def register(torch: Any, paths: Sequence[Path]) -> None:
    """Load what registers operators, each file once in a process.

    A file that the program has imported itself is not run again: an operator can be registered
    only once. Raises whatever the file raises.
    """
    with _lock:
        for path in (each.resolve() for each in paths):
            if path in _loaded:
                continue
            if path.suffix == ".so":
                torch.ops.load_library(str(path))
            elif not _is_imported(path):
                _run(path)
            _loaded.add(path)


def schemas(torch: Any, operators: Sequence[str]) -> dict[str, str]:
    """The schema of each operator that is not PyTorch's own, by its name in the graph.

    Raises `BackendError` for one that nobody registered.
    """
    found = {}
    for name in operators:
        domain, _, rest = name.partition("::")
        if domain in ("aten", "prims", "prim", "higher_order", "python"):
            continue
        operator, _, overload = rest.partition(".")
        try:
            packet = getattr(getattr(torch.ops, domain), operator)
            found[name] = str(getattr(packet, overload or "default")._schema)
        except AttributeError as error:
            raise BackendError(
                f"the operator {name} is not registered",
                hint="name the file that registers it: Torch(custom_ops=['my_ops.py'])",
            ) from error
    return found


def require_schemas(torch: Any, expected: Mapping[str, str]) -> None:
    """Raise `BackendError` unless the operators are registered as they were when compiling."""
    for name, schema in schemas(torch, list(expected)).items():
        if schema != expected[name]:
            raise BackendError(f"{name} is registered as {schema}, the plan calls {expected[name]}")


def _is_imported(path: Path) -> bool:
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return any(file and Path(file).resolve() == path for file in files if isinstance(file, str))


def _run(path: Path) -> None:
    name = f"trivet_custom_ops_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BackendError(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
