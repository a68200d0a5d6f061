"""A family of entries that one host drops is gone on the other, at the cost of one entry."""

from __future__ import annotations

from pathlib import Path

from tests.support.engine import key
from tests.support.hosts import BYTES, Host, never

from trivet.cache import Hit, Miss
from trivet.testing import FakeClock

MANY = 1000


def test_a_drop_reaches_the_other_host_whatever_the_size_of_the_family(
    tmp_path: Path, valkey: str
) -> None:
    clock = FakeClock()
    a, b = (Host(tmp_path / name, None, valkey, clock=clock) for name in "ab")
    a.value(lambda: b"x", name=key("alone"), tags=("few",))
    for n in range(MANY):
        a.value(lambda: b"x", name=key(n), tags=("many",))
    for n in range(0, MANY, 50):
        assert b.value(never, name=key(n), tags=("many",)) == b"x"
    assert commands(a, "few") == commands(a, "many")
    assert isinstance(a.cache.get(key(7), BYTES), Miss)
    assert isinstance(b.cache.get(key(7), BYTES), Miss), "not held here, so asked of the others"
    clock.advance(5.1)
    for n in range(0, MANY, 50):
        assert isinstance(b.cache.get(key(n), BYTES), Miss), "held here"
    assert b.value(lambda: b"y", name=key(7), tags=("many",)) == b"y"
    assert isinstance(a.cache.get(key(7), BYTES), Hit)
    a.close()
    b.close()


def commands(host: Host, tag: str) -> int:
    """That the server had to do for one invalidation."""
    assert host.values is not None
    client = host.values.client

    def done() -> int:
        return sum(each["calls"] for each in client.info("commandstats").values())

    before = done()
    host.cache.invalidate(tag)
    return int(done() - before)
