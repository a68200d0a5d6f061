"""Functions of PyTorch that are replaced under the guard; a part of `trivet_exec_hook`.

Each does what it did, and tells what goes into it.
"""

from __future__ import annotations

import contextlib
import functools
import os

from trivet_exec_loaded import IN_NO_FILE, RUN, operators_before
from trivet_exec_operators import add, note, noted, share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def note_operators(module: Any) -> str:
    """Note what ``torch.library`` is given for a dispatcher; returns why it can't be told what that
    was given before, empty where it can."""
    earlier = getattr(module.Library.impl, "noted", None)
    if earlier is not None:
        share(earlier)  # by an earlier guard in this process, and since
        return ""
    before = operators_before(module)
    add(before - {IN_NO_FILE})
    module.Library.impl = _noting(module.Library.impl, 2, "fn")
    module.Library.impl.noted = noted
    return "operators were implemented before the guard, in no file" if IN_NO_FILE in before else ""


def note_backends(module: Any) -> None:
    """Note the backends that ``torch._dynamo.backends.registry`` is asked for."""
    module.lookup_backend = _noting(module.lookup_backend, 0, "compiler_fn")


def make_headers_private(module: Any, are_needed: Callable[[], bool]) -> Callable[[], None]:
    """Have ``torch._inductor.codecache`` compile headers for this run alone; returns the undoing.

    Inductor makes them below the folder for temporary files, whatever the folder of its cache, and
    in each process runs the preprocessor to see whether they still hold, also where nothing is left
    to compile. They are not made where what includes them was restored.
    """
    names = ("_HEADER_DIR", "_HEADER_LOCK_DIR", "_precompile_header")
    before = {name: getattr(module, name, None) for name in names}
    if None in before.values():  # of another release: it makes headers as it does
        return lambda: None
    compiling: Any = before["_precompile_header"]
    private = os.path.join(RUN, "headers")

    def precompile(*given: Any, **named: Any) -> Any:
        if not are_needed():
            return ""  # whoever is compiled all the same includes the header itself
        return compiling(*given, **named)

    changed = {
        "_HEADER_DIR": private,
        "_HEADER_LOCK_DIR": os.path.join(private, "locks"),
        "_precompile_header": precompile,
    }
    vars(module).update(changed)
    return lambda: vars(module).update(before)


def _noting(function: Any, place: int, name: str) -> Any:
    """``function``, made to note the argument that implements something."""

    @functools.wraps(function)
    def noting(*given: Any, **named: Any) -> Any:
        with contextlib.suppress(Exception):
            note(given[place] if len(given) > place else named[name])
        return function(*given, **named)

    return noting
