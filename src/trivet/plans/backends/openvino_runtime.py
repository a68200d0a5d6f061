"""OpenVINO's extension module without the Python package around it.

``import openvino`` takes about ten times as long as its extension module alone: it brings a model
converter, a TensorFlow front end and a telemetry client with an HTTP stack. None of that is needed
to read, compile and run a model, and a warm start is mostly imports. So the extension is loaded
under its own name, and a later ``import openvino`` anywhere in the process finds and uses it.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import threading
from typing import Any

from trivet.plans.facts.openvino import PACKAGE
from trivet.plans.installed import locate, missing

_EXTENSION = "openvino._pyopenvino"
_lock = threading.Lock()


def load_runtime() -> Any:
    """The module ``openvino._pyopenvino``: classes ``Core``, ``Tensor``, ``PartialShape``.

    Raises `MissingExtra` when OpenVINO is not installed.
    """
    with _lock:
        if PACKAGE.module not in sys.modules:
            module = sys.modules.get(_EXTENSION) or _load_extension_alone()
            if module is not None:
                return module
        try:
            return importlib.import_module(_EXTENSION)
        except ModuleNotFoundError as error:
            raise missing(PACKAGE, f"can't be imported: {error}") from error


def _load_extension_alone() -> Any:
    """The extension, or None when only the ordinary import can tell what is the matter."""
    # `_load` is what the import statement itself calls for a top-level module. It holds the
    # module's import lock, so that a concurrent `import openvino` waits instead of initialising
    # the extension a second time.
    load = getattr(importlib._bootstrap, "_load", None)
    folder = locate(PACKAGE.module)
    if load is None or folder is None:
        return None
    spec = importlib.machinery.PathFinder.find_spec(_EXTENSION, [str(folder)])
    if spec is None:
        return None
    try:
        return load(spec)
    except ImportError:  # an extension that needs its package first
        return None
