"""The circuit breaker around what may be out of reach."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from trivet.clock import Clock
from trivet.errors import StoreUnavailable

T = TypeVar("T")


class Circuit:
    """Stops asking a store which fails.

    After ``failures`` calls in a row that raised `StoreUnavailable` the circuit opens: calls raise
    `StoreUnavailable` at once. After ``reset_after`` seconds one call is let through; its success
    closes the circuit, its failure opens it again. Other errors say something about the call, not
    about the store, and count as answers.
    """

    def __init__(self, failures: int, reset_after: float, clock: Clock) -> None:
        self._limit = failures
        self._reset_after = reset_after
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._retry_at: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the store isn't asked."""
        return self._retry_at is not None

    def call(self, work: Callable[[], T]) -> T:
        """``work()``, unless the circuit is open."""
        self.admit()
        try:
            result = work()
        except Exception as error:
            self.note(failed=isinstance(error, StoreUnavailable))
            raise
        self.note(failed=False)
        return result

    def admit(self) -> None:
        """Raise `StoreUnavailable` where the store isn't asked now."""
        if self._retry_at is None:
            return
        with self._lock:
            now = self._clock.monotonic()
            if self._retry_at is not None and now < self._retry_at:
                raise StoreUnavailable(
                    f"the store failed {self._failed} times in a row and is left alone for "
                    f"{self._retry_at - now:.0f} s more"
                )
            self._retry_at = now + self._reset_after  # this call is the trial; others wait

    def note(self, *, failed: bool) -> None:
        """How a call that was admitted went."""
        if not failed and not self._failed:
            return
        with self._lock:
            self._failed = self._failed + 1 if failed else 0
            is_open = self._failed >= self._limit
            self._retry_at = self._clock.monotonic() + self._reset_after if is_open else None
