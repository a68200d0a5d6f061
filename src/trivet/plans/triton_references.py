"""What Triton's own digest of a kernel leaves out.

It counts the functions that a kernel calls, and constants that are global to it. It does not count
what a kernel takes as an attribute of a module or class, types, and functions that run while it is
compiled (``triton.language.core.builtin``).

It stands alone, for programs under ``trivet exec`` that run without Trivet.
"""

from __future__ import annotations

import inspect
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PLAIN = (bool, int, float, str, type(None))


def count_references(jit: Any) -> Callable[[], None]:
    """Have ``triton.runtime.jit`` count them; returns the undoing.

    A kernel whose digest was asked for before keeps it.
    """
    finder = jit.DependenciesFinder
    record = finder.record_reference

    def record_reference(self: Any, value: Any, *more: Any, **named: Any) -> Any:
        self.hasher.update(_told(value))
        return record(self, value, *more, **named)

    finder.record_reference = record_reference
    return lambda: setattr(finder, "record_reference", record)


def _told(value: Any) -> bytes:
    """What to count of a value; nothing where Triton sees to it, or refuses it."""
    if getattr(value, "__triton_builtin__", False):
        return b"" if value.__module__.startswith("triton.") else _source(value)
    return repr(value).encode("utf-8", "surrogatepass") + b"\0" if _is_plain(value) else b""


def _is_plain(value: Any) -> bool:
    """Whether the text of a value says all of it."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    if type(value).__module__ == "triton.language.core":
        kind = type(value).__name__
        return kind == "dtype" or (kind == "constexpr" and _is_plain(value.value))
    return isinstance(value, _PLAIN)


def _source(function: Any) -> bytes:
    try:
        return inspect.getsource(inspect.unwrap(function)).encode("utf-8", "surrogatepass")
    except (OSError, TypeError):
        return os.urandom(16)  # it can't be told from another one: never found again
