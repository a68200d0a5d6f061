"""Keeps a sink's errors away from the requests that it watches."""

from __future__ import annotations

from trivet import log
from trivet.events import Event, Sink


class Harmless:
    """A sink whose errors are logged and do no other harm."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def __call__(self, event: Event) -> None:
        """Hand ``event`` on."""
        try:
            self._sink(event)
        except Exception:  # noqa: BLE001  a metrics bug must not fail a request
            log.exception("the event sink raised on %s", event.kind)
