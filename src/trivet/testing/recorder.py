"""A sink that remembers."""

from __future__ import annotations

from trivet.events import Event, EventKind, MissReason


class Recorder:
    """An event sink for tests: call it with events, then ask what happened.

    >>> from trivet.events import Event, EventKind, MissReason, Tier
    >>> recorder = Recorder()
    >>> recorder(Event(kind=EventKind.MISS, tier=Tier.HOST, reason=MissReason.ABSENT))
    >>> recorder.kinds()
    [<EventKind.MISS: 'miss'>]
    >>> recorder.reasons()
    [<MissReason.ABSENT: 'absent'>]
    """

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: EventKind) -> list[Event]:
        """The events of one kind, in order."""
        return [event for event in list(self.events) if event.kind is kind]

    def count(self, kind: EventKind) -> int:
        """How many there were of one kind."""
        return len(self.of(kind))

    def kinds(self) -> list[EventKind]:
        """The kinds of all events, in order."""
        return [event.kind for event in list(self.events)]

    def reasons(self) -> list[MissReason]:
        """The reasons of all misses, in order."""
        return [event.reason for event in list(self.events) if event.reason is not None]

    def take(self) -> list[Event]:
        """All events so far; the recorder is empty then."""
        taken, self.events = self.events, []
        return taken
