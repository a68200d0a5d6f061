"""Servers killed, wires cut and slow, holders killed: never wrong, never stuck."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.engine import eventually, key, start
from tests.support.hosts import BYTES, REPEATS, Host, never
from tests.support.servers import S3, Valkey, Wire

from trivet.cache import Lease
from trivet.events import EventKind, MissReason, Tier
from trivet.testing import FakeClock

WORD = b"plan"
SIZE = len(WORD) * REPEATS
BOUND = 60.0  # seconds; a request that is stuck waits for ten minutes

MakeWire = Callable[[int], Wire]


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    """Hosts to be closed."""
    made: list[Host] = []
    yield made
    for host in made:
        host.close()


@pytest.fixture
def wired(
    s3: str, s3_server: S3, valkey: str, wire_to: MakeWire, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Wire, str, Wire]:
    """S3 and Valkey, each with a wire for all who connect from now on."""
    objects, values = wire_to(s3_server.port), wire_to(int(valkey.rpartition(":")[2][:-2]))
    monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{objects.port}")
    return s3, objects, f"valkey://127.0.0.1:{values.port}/0", values


def in_time(work: Callable[[], object]) -> object:
    """What ``work`` returns; fails where it took so long that somebody must have been stuck."""
    started = time.monotonic()
    result = work()
    assert time.monotonic() - started < BOUND
    return result


def troubles(host: Host) -> list[str]:
    """What failed of the shared tier."""
    failed = host.events.of(EventKind.TIER_FAILED)
    assert all(each.tier is Tier.SHARED for each in failed)
    return [each.detail for each in failed]


# -- partition ---------------------------------------------------------------------------------


def test_a_host_that_is_cut_off_goes_on_alone_and_joins_again(
    tmp_path: Path, hosts: list[Host], wired: tuple[str, Wire, str, Wire]
) -> None:
    objects_url, objects, values_url, values = wired
    clock = FakeClock()
    a = Host(tmp_path / "a", objects_url, values_url, timeout=20, clock=clock)
    b = Host(tmp_path / "b", objects_url, values_url, timeout=1, clock=clock)
    hosts += [a, b]
    a.value(lambda: b"old", tags=("t",))
    a.plan(WORD, tags=("t",))
    assert b.value(never, tags=("t",)) == b"old"

    objects.cut = values.cut = True
    clock.advance(60)
    assert in_time(lambda: b.value(never, tags=("t",))) == b"old", "what it has still serves"
    assert in_time(lambda: b.plan(WORD, tags=("t",))) == (WORD, True)
    assert in_time(lambda: b.value(lambda: b"n", name=key("n"))) == b"n"
    assert troubles(b)

    objects.cut = values.cut = False
    a.cache.invalidate("t")
    clock.advance(60)
    assert b.value(lambda: b"new", tags=("t",)) == b"new", "it has learnt of the invalidation"
    assert a.value(never, tags=("t",)) == b"new"


def test_a_process_that_starts_cut_off_still_knows_what_its_host_had_learnt(
    tmp_path: Path, hosts: list[Host], wired: tuple[str, Wire, str, Wire]
) -> None:
    objects_url, objects, values_url, values = wired
    a = Host(tmp_path / "a", objects_url, values_url)
    b = Host(tmp_path / "b", objects_url, values_url)
    hosts += [a, b]
    for name in ("m", "n"):
        a.value(lambda: b"old", name=key(name), tags=("t",))
        b.value(never, name=key(name), tags=("t",))
    a.cache.invalidate("t")
    b.close()
    b = Host(tmp_path / "b", objects_url, values_url)
    assert b.value(lambda: b"new", name=key("m"), tags=("t",)) == b"new"
    b.close()

    objects.cut = values.cut = True
    late = Host(tmp_path / "b", objects_url, values_url, timeout=0.5)
    hosts.append(late)
    assert late.value(never, name=key("m"), tags=("t",)) == b"new"
    assert late.value(lambda: b"new", name=key("n"), tags=("t",)) == b"new"


def test_a_wait_ends_when_the_wire_is_cut(
    tmp_path: Path, hosts: list[Host], valkey: str, wire_to: MakeWire
) -> None:
    wire = wire_to(int(valkey.rpartition(":")[2][:-2]))
    a = Host(tmp_path / "a", None, valkey)
    b = Host(tmp_path / "b", None, f"valkey://127.0.0.1:{wire.port}/0", timeout=1)
    hosts += [a, b]
    lease = a.cache.acquire(key(), BYTES)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(b.value(lambda: b"alone")))
    thread.start()
    eventually(lambda: b.events.count(EventKind.WAITED) > 0, "b waits")
    wire.cut = True
    thread.join(BOUND)
    assert got == [b"alone"]
    assert isinstance(lease, Lease)
    assert lease.commit(b"a") == b"a"


# -- slow --------------------------------------------------------------------------------------


def test_a_link_that_is_too_slow_is_given_up_in_time(
    tmp_path: Path, hosts: list[Host], wired: tuple[str, Wire, str, Wire]
) -> None:
    objects_url, objects, values_url, _ = wired
    a = Host(tmp_path / "a", objects_url, values_url)
    b = Host(tmp_path / "b", objects_url, values_url, timeout=2)
    hosts += [a, b]
    a.plan(WORD)
    objects.rate = 200_000.0
    assert in_time(lambda: b.plan(b"mine")) == (b"mine", True)
    assert any("fetch" in each for each in troubles(b))
    assert not list((tmp_path / "b" / "staging").glob("*/files/**/*")), "no half is left"
    objects.rate = None
    c = Host(tmp_path / "c", objects_url, values_url)
    hosts.append(c)
    assert c.plan(None) == (WORD, False)


@pytest.mark.parametrize("what", ["value", "plan"])
def test_a_link_of_a_kilobyte_a_second_keeps_nobody(
    tmp_path: Path, hosts: list[Host], wired: tuple[str, Wire, str, Wire], what: str
) -> None:
    """It is never silent: each piece comes in time, and the whole would take hours."""
    objects_url, objects, values_url, values = wired
    a = Host(tmp_path / "a", objects_url, values_url)
    b = Host(tmp_path / "b", objects_url, values_url, timeout=1)
    hosts += [a, b]
    a.plan(WORD, tags=("t",))
    a.value(lambda: bytes(900_000), name=key("large"))
    objects.rate = values.rate = 1000.0
    if what == "plan":
        assert in_time(lambda: b.plan(b"mine", tags=("t",))) == (b"mine", True)
    else:
        assert in_time(lambda: b.value(lambda: b"mine", name=key("large"))) == b"mine"
    assert troubles(b)
    assert not list((tmp_path / "b" / "staging").glob("*/files/**/*")), "no half is left"
    objects.rate = values.rate = None
    c = Host(tmp_path / "c", objects_url, values_url)
    hosts.append(c)
    assert c.plan(None, tags=("t",)) == (WORD, False)


def test_a_valkey_that_drips_is_given_up_in_time(
    tmp_path: Path, hosts: list[Host], valkey: str, wire_to: MakeWire
) -> None:
    wire = wire_to(int(valkey.rpartition(":")[2][:-2]))
    a = Host(tmp_path / "a", None, valkey)
    b = Host(tmp_path / "b", None, f"valkey://127.0.0.1:{wire.port}/0", timeout=1)
    hosts += [a, b]
    a.value(lambda: bytes(400_000))
    wire.rate = 5000.0  # 80 seconds
    started = wire.carried
    assert in_time(lambda: b.value(lambda: b"mine")) == b"mine"
    assert wire.carried - started < 40_000
    assert troubles(b)


def test_a_slow_link_is_used(
    tmp_path: Path, hosts: list[Host], wired: tuple[str, Wire, str, Wire]
) -> None:
    objects_url, objects, values_url, values = wired
    objects.rate, values.rate = 4e6, 1e5
    a = Host(tmp_path / "a", objects_url, values_url)
    b = Host(tmp_path / "b", objects_url, values_url)
    hosts += [a, b]
    assert a.plan(WORD) == (WORD, True)
    assert b.plan(None) == (WORD, False)


# -- killed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.2, 0.6, 0.95])
def test_a_wire_that_is_cut_in_the_middle_of_an_upload_leaves_nothing_to_be_found(
    tmp_path: Path, hosts: list[Host], wired: tuple[str, Wire, str, Wire], part: float
) -> None:
    objects_url, objects, values_url, _ = wired
    a = Host(tmp_path / "a", objects_url, values_url, timeout=2)
    hosts.append(a)
    a.value(lambda: b"", tags=("t",))
    objects.stop_after = objects.carried + int(SIZE * part)
    assert in_time(lambda: a.plan(WORD)) == (WORD, True)
    assert a.events.count(EventKind.SHARED) == 1, "the value alone"
    assert a.plan(None) == (WORD, False), "here it is kept"
    objects.stop_after, objects.cut = None, False
    b, c = (Host(tmp_path / name, objects_url, values_url) for name in "bc")
    hosts += [b, c]
    assert b.plan(WORD) == (WORD, True)
    assert not b.events.of(EventKind.QUARANTINED), "nothing was there, not even a half"
    assert c.plan(None) == (WORD, False)


@pytest.fixture
def own_s3(
    tmp_path: Path, wire_to: MakeWire, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[S3, Wire]]:
    """An S3 that the test may kill, behind a wire."""
    (tmp_path / "server").mkdir()
    server = S3(tmp_path / "server")
    server.start()
    wire = wire_to(server.port)
    for name, value in server.environment(wire.port).items():
        monkeypatch.setenv(name, value)
    yield server, wire
    server.kill()


def test_an_s3_server_killed_in_the_middle_of_a_fetch_fails_nobody(
    tmp_path: Path, hosts: list[Host], own_s3: tuple[S3, Wire]
) -> None:
    server, wire = own_s3
    url = server.make_bucket("bucket")
    a, b = Host(tmp_path / "a", url), Host(tmp_path / "b", url, timeout=5)
    hosts += [a, b]
    a.plan(WORD)
    wire.rate = 2e6  # four seconds for the plan
    before, got = wire.carried, list[tuple[bytes, bool]]()
    thread = threading.Thread(target=lambda: got.append(b.plan(b"mine")))
    thread.start()
    eventually(lambda: wire.carried > before + SIZE // 4, "the fetch is under way")
    server.kill()
    thread.join(BOUND)
    assert got == [(b"mine", True)]
    assert any("fetch" in each for each in troubles(b))
    assert not b.events.of(EventKind.QUARANTINED), "what is out of reach is not damaged"
    assert not list((tmp_path / "b" / "staging").glob("*/files/**/*")), "no half is left"


def test_an_s3_server_killed_in_the_middle_of_an_upload_fails_nobody(
    tmp_path: Path, hosts: list[Host], own_s3: tuple[S3, Wire]
) -> None:
    server, wire = own_s3
    a = Host(tmp_path / "a", server.make_bucket("bucket"), timeout=5)
    hosts.append(a)
    wire.rate = 2e6  # four seconds for the plan
    thread = threading.Thread(target=lambda: a.plan(WORD))
    thread.start()
    eventually(lambda: wire.carried > SIZE // 4, "the upload is under way")
    server.kill()
    thread.join(BOUND)
    assert not thread.is_alive()
    assert a.plan(None) == (WORD, False)
    assert any("write" in each for each in troubles(a))
    assert in_time(lambda: a.value(lambda: b"x")) == b"x"


UPLOAD = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.support.hosts import Host
Host(Path(sys.argv[2]), *sys.argv[3:], lease_seconds=2).plan(b"plan")
"""


def test_an_uploader_that_is_killed_leaves_nothing_to_be_found_and_its_lease_ends(
    tmp_path: Path, hosts: list[Host], wired: tuple[str, Wire, str, Wire]
) -> None:
    objects_url, objects, values_url, _ = wired
    objects.rate = 2e6
    here = Path(__file__).parents[2]
    process = start(UPLOAD, here, tmp_path / "a", objects_url, values_url)
    eventually(lambda: objects.carried > SIZE // 4, "the upload is under way", 60)
    process.kill()
    process.communicate()
    objects.rate = None
    b, c = (Host(tmp_path / name, objects_url, values_url) for name in "bc")
    hosts += [b, c]
    assert in_time(lambda: b.plan(b"mine")) == (b"mine", True)
    assert not b.events.of(EventKind.QUARANTINED), "nothing was there, not even a half"
    assert c.plan(None) == (b"mine", False)
    again = Host(tmp_path / "a", objects_url, values_url)
    hosts.append(again)
    assert again.plan(None) == (WORD, False), "published on its own host before the upload"


HOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.support.engine import eventually, key
from tests.support.hosts import BYTES, Host
host = Host(Path(sys.argv[2]), None, sys.argv[3], lease_seconds=2)
host.wait_until_told()
lease = host.cache.acquire(key(), BYTES)
print("held", flush=True)
sys.stdin.readline()
near = host.cache.engine.tiers.shared.near
eventually(lambda: near.version(key().digest) >= 3, "it is told of what was made meanwhile")
lease.commit(b"late")
"""


def test_the_lease_of_a_killed_holder_ends(tmp_path: Path, hosts: list[Host], valkey: str) -> None:
    process = start(HOLD, Path(__file__).parents[2], tmp_path / "a", valkey)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    b = Host(tmp_path / "b", None, valkey)
    hosts.append(b)
    process.kill()
    process.communicate()
    assert in_time(lambda: b.value(lambda: b"b", wait=600)) == b"b"
    assert b.events.of(EventKind.WAITED)[-1].tier is Tier.SHARED


def test_a_holder_that_was_stopped_for_too_long_replaces_nothing(
    tmp_path: Path, hosts: list[Host], valkey: str
) -> None:
    process = start(HOLD, Path(__file__).parents[2], tmp_path / "a", valkey)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    os.kill(process.pid, signal.SIGSTOP)
    b, c = (Host(tmp_path / name, None, valkey) for name in "bc")
    hosts += [b, c]
    assert in_time(lambda: b.value(lambda: b"b", wait=600)) == b"b"
    os.kill(process.pid, signal.SIGCONT)
    _, errors = process.communicate("\n", timeout=60)
    assert process.returncode == 0, errors
    assert c.value(never) == b"b"
    a = Host(tmp_path / "a", None, valkey)
    hosts.append(a)
    assert a.value(never) == b"late", "its own, which is as right"


def test_a_valkey_that_is_killed_under_a_lease_fails_nobody(
    tmp_path: Path, hosts: list[Host], own_valkey: Valkey
) -> None:
    clock = FakeClock()
    a, b = (Host(tmp_path / n, None, own_valkey.url, timeout=1, clock=clock) for n in "ab")
    hosts += [a, b]
    lease = a.cache.acquire(key(), BYTES, tags=["t"])
    assert isinstance(lease, Lease)
    own_valkey.kill()
    assert in_time(lambda: b.value(lambda: b"b", tags=("t",))) == b"b"
    assert lease.commit(b"a") == b"a"
    assert a.value(never, tags=("t",)) == b"a"
    own_valkey.start()
    clock.advance(60)
    a.value(lambda: b"again", name=key("n"))
    assert b.value(never, name=key("n")) == b"again", "both found it again"


def test_a_dead_server_is_not_asked_by_every_request(
    tmp_path: Path, hosts: list[Host], own_valkey: Valkey
) -> None:
    own_valkey.kill()
    clock = FakeClock()
    a = Host(tmp_path / "a", None, own_valkey.url, timeout=1, clock=clock)
    hosts.append(a)
    for i in range(50):
        a.value(lambda: b"x", name=key(i), tags=("t",))
    asked = [each for each in troubles(a) if "left alone" not in each]
    assert len(asked) <= 3, asked
    before = len(troubles(a))
    for i in range(50):
        a.value(never, name=key(i), tags=("t",))
    assert len(troubles(a)) == before, "hits ask nothing until it is due"


def test_strict_raises_what_is_otherwise_an_event(tmp_path: Path, own_valkey: Valkey) -> None:
    from trivet.cache import Cache
    from trivet.errors import StoreUnavailable

    own_valkey.kill()
    cache = Cache.open(tmp_path / "a", shared=own_valkey.url, strict=True)
    with pytest.raises(StoreUnavailable):
        cache.get(key(), BYTES)
    cache.close()
    cache = Cache.open(tmp_path / "b", shared=own_valkey.url)
    assert cache.get(key(), BYTES).reason is MissReason.UNAVAILABLE  # type: ignore[union-attr]
    cache.close()
