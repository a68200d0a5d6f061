"""Events: frozen records with names that dashboards can rely on."""

from __future__ import annotations

import re

import msgspec
import pytest

from trivet.events import Event, EventKind, MissReason, Tier


@pytest.mark.parametrize("kind", [EventKind, MissReason, Tier])
def test_names_are_unique_and_kebab_case(kind: type[EventKind | MissReason | Tier]) -> None:
    names = [each.value for each in kind]
    assert len(set(names)) == len(names) == len(kind.__members__)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)
    assert [str(each) for each in kind] == names


def test_an_event_can_not_be_changed() -> None:
    event = Event(kind=EventKind.HIT, tier=Tier.MEMORY)
    with pytest.raises(AttributeError):
        event.size = 1  # type: ignore[misc]


def test_an_event_survives_the_trip_to_a_collector() -> None:
    event = Event(
        kind=EventKind.MISS,
        tier=Tier.HOST,
        space="plan/1",
        digest=bytes(range(32)),
        reason=MissReason.KEY_MISMATCH,
        seconds=0.25,
        size=10,
        detail="why",
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event) == event
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event
