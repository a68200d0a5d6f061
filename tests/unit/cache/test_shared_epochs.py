"""The copy of the shared epochs: how old it may be, and what happens when it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from trivet.cache.epoch_view import EpochView
from trivet.cache.notes import Notes
from trivet.errors import StoreUnavailable
from trivet.testing import FakeClock


class Source:
    """Epochs in a dict, counting what is asked."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.count = 0
        self.asked: Counter[str] = Counter()
        self.broken = False
        self.between: Callable[[], None] = lambda: None

    def mark(self) -> str:
        self._ask("mark")
        return str(self.count)

    def epochs(self, tags: Iterable[str]) -> dict[str, int]:
        self._ask("epochs")
        found = {tag: self.now.get(tag, 0) for tag in tags}
        self.between()
        return found

    def raise_epochs(self, tags: Iterable[str]) -> None:
        self.count += 1
        self.now.update({tag: self.now.get(tag, 0) + 1 for tag in tags})

    def _ask(self, what: str) -> None:
        self.asked[what] += 1
        if self.broken:
            raise StoreUnavailable("broken")


def ask(work: Callable[[], None]) -> None:
    work()


class Case:
    def __init__(self) -> None:
        self.clock, self.source = FakeClock(), Source()
        self.here = {"t": 1}
        self.notes = Notes(None, "x")
        self.view = EpochView(self.source, self.notes, lambda _: dict(self.here), self.clock)


@pytest.fixture
def case() -> Case:
    return Case()


def test_it_is_compared_after_the_bound_and_read_again_only_when_something_changed(
    case: Case,
) -> None:
    assert not case.view.is_fresh()
    case.view.refresh(ask)
    case.view.learn(["t"], ask)
    assert case.view.is_fresh()
    assert case.view.known(["t", "u"]) == {"t": 0}
    case.clock.advance(5)
    assert not case.view.is_fresh()
    case.view.refresh(ask)
    assert case.source.asked == {"mark": 2, "epochs": 1}
    assert case.view.changes == 0
    case.source.raise_epochs(["t"])
    case.view.refresh(ask)
    assert case.view.known(["t"]) == {"t": 1}
    assert case.view.changes == 1


def test_one_that_failed_is_not_repeated_at_once(case: Case) -> None:
    case.source.broken = True
    with pytest.raises(StoreUnavailable):
        case.view.refresh(ask)
    assert case.view.is_fresh()
    assert not case.view.reachable


def test_what_the_host_remembers_is_known_before_anything_was_asked(case: Case) -> None:
    case.notes.remember({"t": 9}, {"t": 1})
    case.notes.distrust(["u"], {"u": 1})
    assert case.view.known(["t", "u"]) == {"t": 9}


def test_a_tag_invalidated_here_alone_is_told_from_one_invalidated_by_all(case: Case) -> None:
    case.view.learn(["t"], ask)
    assert not case.view.invalidated_here({"t": 0}, {"t": 1})
    assert case.view.invalidated_here({"t": 0}, {"t": 2})
    case.source.raise_epochs(["t"])
    case.here["t"] = 2
    case.view.refresh(ask)
    assert not case.view.invalidated_here({"t": 1}, {"t": 2})


def test_an_invalidation_here_while_the_epochs_are_read_is_not_missed(case: Case) -> None:
    def invalidate() -> None:
        case.here["t"] += 1

    case.source.between = invalidate  # at every read, for ever
    case.view.learn(["t"], ask)
    assert case.view.invalidated_here({"t": 0}, case.here)
