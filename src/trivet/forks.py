"""Objects that a forked child has to set right, since threads and held locks are its parent's."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_children(reset: Callable[[T], object]) -> weakref.WeakSet[T]:
    """A set of objects: in a forked child ``reset`` is called with each that is alive."""
    members: weakref.WeakSet[T] = weakref.WeakSet()

    def after_fork() -> None:
        for each in list(members):
            reset(each)

    os.register_at_fork(after_in_child=after_fork)
    return members
