"""The circuit breaker."""

from __future__ import annotations

import pytest

from trivet.errors import CorruptEntry, StoreReadOnly, StoreUnavailable
from trivet.stores.circuit import Circuit
from trivet.testing import FakeClock


def fail(error: Exception) -> None:
    raise error


def test_it_opens_after_failures_in_a_row_and_tries_again_later() -> None:
    clock, calls = FakeClock(), []
    circuit = Circuit(2, 30.0, clock)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="out"):
            circuit.call(lambda: fail(StoreUnavailable("out")))
    assert circuit.is_open
    with pytest.raises(StoreUnavailable, match="left alone"):
        circuit.call(lambda: calls.append(1))
    assert not calls
    clock.advance(30)
    circuit.call(lambda: calls.append(1))
    assert calls
    assert not circuit.is_open


@pytest.mark.parametrize("answer", [StoreReadOnly("no"), CorruptEntry("damaged"), OSError("local")])
def test_other_errors_are_answers(answer: Exception) -> None:
    clock = FakeClock()
    circuit = Circuit(1, 30.0, clock)
    with pytest.raises(StoreUnavailable):
        circuit.call(lambda: fail(StoreUnavailable("out")))
    clock.advance(30)
    with pytest.raises(type(answer)):
        circuit.call(lambda: fail(answer))
    assert not circuit.is_open
