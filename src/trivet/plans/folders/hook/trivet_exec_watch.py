"""Watches frameworks by functions of theirs that are replaced; a part of `trivet_exec_hook`.

Each does what it did, tells what goes into it, and is itself again when the guard is over.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os

from trivet_exec_ask import fit, go_without
from trivet_exec_loaded import IN_NO_FILE, RUN, operators_before
from trivet_exec_operators import add, look_anew, note
from trivet_exec_report import report
from trivet_exec_state import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NOTHING = object()


def watch(function: str, module: Any) -> None:
    """Call one of the functions below. Where it fails, nothing that was restored may be used."""
    try:
        globals()[function](module)
    except Exception as error:  # noqa: BLE001
        with state.lock:
            state.is_blind = True
            state.doubt = f"{module.__name__} can't be watched: {error}"
            go_without()


def watch_compiling(module: Any) -> None:
    """``torch._dynamo.callback``."""
    handler = module.callback_handler
    # Not among its lists of callbacks, which programs clear by torch._dynamo.reset().
    start, end = handler.run_start_callbacks, handler.run_end_callbacks

    @functools.wraps(start)
    def run_start_callbacks(*arguments: Any) -> None:
        with state.lock:
            look_anew()
        fit()
        start(*arguments)

    @functools.wraps(end)
    def run_end_callbacks(*arguments: Any) -> None:
        end(*arguments)
        report()

    _replace(handler, "run_start_callbacks", run_start_callbacks)
    _replace(handler, "run_end_callbacks", run_end_callbacks)


def watch_operators(module: Any) -> None:
    """``torch.library``: what is given to a dispatcher is in no registry of Python."""
    before = operators_before(module)
    add(before - {IN_NO_FILE})
    if IN_NO_FILE in before and not state.doubt:
        state.doubt = "operators were implemented before the guard, in no file"
    _note_argument(module.Library, "impl", 2, "fn")


def watch_backends(module: Any) -> None:
    """``torch._dynamo.backends.registry``: a program's own backend may bring decompositions."""
    _note_argument(module, "lookup_backend", 0, "compiler_fn")


def watch_headers(module: Any) -> None:
    """``torch._inductor.codecache``: has it compile headers for this run alone.

    Inductor makes them below the folder for temporary files, whatever the folder of its cache, and
    in each process runs the preprocessor to see whether they still hold, also where nothing is left
    to compile. They are not made where what includes them was restored.
    """
    names = ("_HEADER_DIR", "_HEADER_LOCK_DIR", "_precompile_header")
    if not all(hasattr(module, name) for name in names):
        return  # of another release: it makes headers as it does
    compiling = module._precompile_header

    @functools.wraps(compiling)
    def precompile(*given: Any, **named: Any) -> Any:
        if state.given.get("torch", {}).get("restored") == "hit":
            return ""  # whoever is compiled all the same includes the header itself
        return compiling(*given, **named)

    _replace(module, "_HEADER_DIR", os.path.join(RUN, "headers"))
    _replace(module, "_HEADER_LOCK_DIR", os.path.join(RUN, "headers", "locks"))
    _replace(module, "_precompile_header", precompile)


def watch_kernels(module: Any) -> None:
    """``triton.runtime.jit``: its digest of a kernel leaves things out."""
    plans = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.path.join(plans, "triton_references.py")
    spec: Any = importlib.util.spec_from_file_location("trivet_exec_triton", path)
    references = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(references)
    state.undo.callback(references.count_references(module))


def watch_jax(module: Any) -> None:
    """``jax._src.monitoring``."""

    def event(name: str, **_: object) -> None:
        if name.startswith("/jax/compilation_cache/"):
            state.counters.add_jax(name, 1)
            if name.endswith("/compile_requests_use_cache"):
                fit()
            elif name.endswith("/cache_misses"):
                report()

    def duration(name: str, seconds: float, **_: object) -> None:
        if name.startswith("/jax/compilation_cache/"):
            state.counters.add_jax(name, seconds)

    module.register_event_listener(event)
    module.register_event_duration_secs_listener(duration)
    state.undo.callback(lambda: module.unregister_event_listener(event))
    state.undo.callback(lambda: module.unregister_event_duration_listener(duration))


def _replace(owner: Any, name: str, replacement: Any) -> None:
    """Until the guard is over, or somebody else puts yet another one there."""
    before = vars(owner).get(name, _NOTHING)
    setattr(owner, name, replacement)

    def put_back() -> None:
        if vars(owner).get(name) is not replacement:
            return
        if before is _NOTHING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    state.undo.callback(put_back)


def _note_argument(owner: Any, name: str, place: int, argument: str) -> None:
    """Note what is given to a function as the argument that implements something."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def noting(*given: Any, **named: Any) -> Any:
        with contextlib.suppress(Exception):
            note(given[place] if len(given) > place else named[argument])
        return function(*given, **named)

    _replace(owner, name, noting)
