"""What lasts as long as the process, however often that is guarded; a part of `trivet_exec_hook`.

Python keeps for good what it is to call at audit events and after a fork. So it is told once, and
calls by way of this module, which stays when the others go with their guard.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

noted: list[Any] = []  # weak references to what implements operators and is in no registry
_audit: Callable[[str, tuple[Any, ...]], None] | None = None
_forked: Callable[[], None] | None = None
_is_told = False


def begin(audit: Callable[[str, tuple[Any, ...]], None], forked: Callable[[], None]) -> None:
    """Have ``audit`` called at each event, and ``forked`` in each child, until the `end`."""
    global _audit, _forked, _is_told
    _audit, _forked = audit, forked
    if not _is_told:
        _is_told = True
        sys.addaudithook(_call_audit)
        os.register_at_fork(after_in_child=_call_forked)


def end() -> None:
    """Have nothing called any more."""
    global _audit, _forked
    _audit = _forked = None


def _call_audit(event: str, arguments: tuple[Any, ...]) -> None:
    audit = _audit
    if audit is not None:
        audit(event, arguments)


def _call_forked() -> None:
    if _forked is not None:
        _forked()
