"""What others change is dropped here at once: pushed by the server, and never kept after it.

The observers' clocks stand still, so none of them polls.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import eventually, finish, key, start
from tests.support.hosts import BYTES, Host, never
from tests.support.servers import Redis, Valkey, ValkeyCluster, Wire

from trivet.cache import Lease
from trivet.events import EventKind, Tier
from trivet.testing import FakeClock

HERE = Path(__file__).parents[2]
CHANGE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.support.engine import key
from tests.support.hosts import Host
host = Host(Path(sys.argv[2]), None, sys.argv[3])
host.value(lambda: b"old", tags=("t",))
print("ready", flush=True)
for line in sys.stdin:
    if line == "forget\\n":
        host.cache.forget(key())
    elif line == "invalidate\\n":
        host.cache.invalidate("t")
    else:
        host.rewrite(line.strip().encode())
    print("done", flush=True)
host.close()
"""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "redis"
    folder.mkdir()
    server = Redis(folder)
    server.start()
    yield server.url
    server.kill()


@pytest.fixture(
    params=[
        "valkey",
        "cluster",
        "socket",
        pytest.param("redis", marks=pytest.mark.needs("redis-server")),
    ]
)
def url(request: pytest.FixtureRequest) -> str:
    """Of every kind of server."""
    name = {"socket": "socket_url"}.get(request.param, request.param)
    found = request.getfixturevalue(name)
    return found if isinstance(found, str) else found.url


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Makes hosts whose clocks stand still, named by their folders."""
    made: list[Host] = []

    def make(name: str, values: str | None, objects: str | None = None, **options: Any) -> Host:
        made.append(Host(tmp_path / name, objects, values, clock=FakeClock(), **options))
        return made[-1]

    yield make
    for host in made:
        host.close()


Make = Callable[..., Host]


class Other:
    """Another process, of another host."""

    def __init__(self, folder: Path, url: str) -> None:
        self.process = start(CHANGE, HERE, folder, url)
        self._answer("ready")

    def does(self, what: str) -> None:
        """Returns when it is done."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        self._answer("done")

    def _answer(self, what: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{what}\n", self.process.stderr


@pytest.fixture
def other(tmp_path: Path, url: str) -> Iterator[Other]:
    other = Other(tmp_path / "other", url)
    yield other
    finish(other.process)


def values(*hosts: Host) -> list[bytes | None]:
    found = [host.look() for host in hosts]
    return [None if each is None else each[0] for each in found]


# -- what others do ----------------------------------------------------------------------------


@pytest.mark.parametrize("memory_bytes", [1 << 20, 0])
def test_what_another_process_does_is_seen_by_the_next_look_up(
    make: Make, url: str, other: Other, memory_bytes: int
) -> None:
    host = make("a", url, memory_bytes=memory_bytes).wait_until_told()
    assert host.value(never, tags=("t",)) == b"old"
    in_memory = Tier.MEMORY if memory_bytes else Tier.HOST
    assert host.look() == (b"old", in_memory)
    for n in range(20):
        other.does(f"new{n}")
        eventually(lambda n=n: values(host) == [b"new%d" % n], "the new value", 5)  # type: ignore[misc]
        kept = (b"new%d" % n, in_memory)  # fetched in the middle of being told, it is so once more
        eventually(lambda kept=kept: host.look() == kept, "it is kept", 5)  # type: ignore[misc]
    other.does("forget")
    eventually(lambda: values(host) == [None], "it is gone", 5)
    assert not host.events.of(EventKind.TIER_FAILED)


def test_what_another_process_invalidates_is_not_answered_again(
    make: Make, url: str, other: Other
) -> None:
    host = make("a", url).wait_until_told()
    for _ in range(5):
        assert host.look() is not None
        assert host.look()[1] is Tier.MEMORY  # type: ignore[index]
        other.does("invalidate")
        eventually(lambda: values(host) == [None], "it is invalid", 5)
        host.value(lambda: b"again", tags=("t",))


def test_epochs_in_an_object_store_and_large_values_are_pushed_through_valkey(
    make: Make, s3: str, valkey: str
) -> None:
    a, b = make("a", valkey, s3), make("b", valkey, s3).wait_until_told()
    large = bytes(2 << 20)
    a.value(lambda: large, name=key("large"))
    a.value(lambda: b"old", tags=("t",))
    assert b.value(never, tags=("t",)) == b"old"
    assert b.value(never, name=key("large")) == large
    a.cache.invalidate("t")
    eventually(lambda: values(b) == [None], "it is invalid", 5)
    a.cache.forget(key("large"))
    eventually(lambda: b.look(key("large")) is None, "it is gone", 5)


# -- one host ----------------------------------------------------------------------------------


def test_processes_of_one_host_keep_what_one_of_them_wrote_to_their_folder(
    make: Make, valkey: str
) -> None:
    one, two, far = make("a", valkey), make("a", valkey), make("b", valkey)
    one.value(lambda: b"old")
    for each in (two, far):
        each.wait_until_told()
        assert each.look() is not None
        assert each.look() == (b"old", Tier.MEMORY)
    one.rewrite(b"new")
    eventually(lambda: values(two, far) == [b"new"] * 2, "the new value", 5)
    assert Tier.SHARED not in [each.tier for each in two.events.of(EventKind.HIT)]
    assert Tier.SHARED in [each.tier for each in far.events.of(EventKind.HIT)]


def test_who_writes_keeps_its_own_copy(make: Make, valkey: str) -> None:
    a, b = make("a", valkey).wait_until_told(), make("b", valkey)
    b.value(lambda: b"b", name=key("b"))
    assert a.value(never, name=key("b")) == b"b"
    a.value(lambda: b"mine")
    b.rewrite(b"new", name=key("b"))  # told after what a did itself
    eventually(lambda: a.look(key("b")) == (b"new", Tier.MEMORY), "a is told", 5)
    assert a.look() == (b"mine", Tier.MEMORY)


# -- the race of a read and a change -----------------------------------------------------------


class Race:
    """A host that changes what another reads.

    The other is told of changes only after ``old`` was made: the news of that comes in no test's
    way.
    """

    def __init__(self, make: Make, url: str) -> None:
        self.maker, self.reader = make("a", url), make("b", url)
        self.maker.value(lambda: b"old")
        self.reader.wait_until_told()
        tiers = self.reader.cache.engine.tiers
        self.store, self.memory = tiers.store, tiers.memory
        self._near = tiers.shared.near  # type: ignore[union-attr]

    def change(self, digest: bytes) -> None:
        """Returns when the reader was told."""
        assert self._near is not None
        seen = partial(self._near.version, digest)
        before = seen()
        self.maker.rewrite(b"new")
        eventually(lambda: seen() >= before + 2, "it is told")


@pytest.fixture
def race(make: Make, valkey: str) -> Race:
    return Race(make, valkey)


def test_what_was_read_from_the_server_before_a_change_is_not_kept_after_it(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = race.reader
    read = b.values.read  # type: ignore[union-attr]

    def late(digest: bytes) -> bytes | None:
        found = read(digest)
        race.change(digest)
        monkeypatch.undo()
        return found

    monkeypatch.setattr(b.values, "read", late)
    assert b.look() == (b"old", Tier.SHARED), "asked before the change"
    assert b.look() == (b"new", Tier.SHARED)


def test_what_was_read_before_a_change_and_written_after_it_leaves_the_folder_again(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = race.reader
    write = race.store.write  # type: ignore[union-attr]

    def late(digest: bytes, sealed: bytes) -> None:
        race.change(digest)
        monkeypatch.undo()
        write(digest, sealed)

    monkeypatch.setattr(race.store, "write", late)
    assert b.look() == (b"old", Tier.SHARED), "asked before the change"
    assert b.look() == (b"new", Tier.SHARED)


def test_what_was_read_from_the_folder_before_a_change_is_not_kept_after_it(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = race.reader
    assert b.look() == (b"old", Tier.SHARED)
    race.memory.clear()
    read = race.store.read  # type: ignore[union-attr]

    def late(digest: bytes) -> bytes | None:
        monkeypatch.undo()
        found = read(digest)
        race.change(digest)
        return None if found is None else bytes(found)

    monkeypatch.setattr(race.store, "read", late)
    assert b.look() == (b"old", Tier.HOST), "asked before the change"
    assert b.look() == (b"new", Tier.SHARED)


def test_what_was_read_from_the_folder_before_it_was_dropped_there_is_not_kept(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = race.reader
    assert b.look() == (b"old", Tier.SHARED)
    evict, seen = race.store.evict, list[object]()  # type: ignore[union-attr]

    def late(digest: bytes) -> bool:
        race.memory.clear()
        seen.extend((b.look(), b.look()))
        return evict(digest)

    monkeypatch.setattr(race.store, "evict", late)
    race.maker.rewrite(b"new")
    eventually(lambda: values(b) == [b"new"], "the new value", 5)
    assert seen == [(b"old", Tier.HOST), (b"old", Tier.MEMORY)], "while it was about to be dropped"


def test_what_is_being_computed_when_its_tag_is_invalidated_elsewhere_is_not_kept(
    make: Make, valkey: str
) -> None:
    a, b = make("a", valkey), make("b", valkey).wait_until_told()
    a.value(lambda: b"x", name=key("x"), tags=("t",))
    lease = b.cache.acquire(key(), BYTES, tags=["t"])
    assert isinstance(lease, Lease)
    a.cache.invalidate("t")
    view = b.cache.engine.tiers.shared.view  # type: ignore[union-attr]
    eventually(lambda: not view.is_fresh(), "b is told")
    assert lease.commit(b"old") == b"old"
    assert b.look() is None


# -- the connection ----------------------------------------------------------------------------


def kept(host: Host) -> int:
    """Values in memory."""
    return host.cache.engine.tiers.memory.stats().entries


def test_when_the_connection_drops_memory_is_flushed_and_it_is_made_again(
    make: Make, own_valkey: Valkey
) -> None:
    host = make("a", own_valkey.url, timeout=1)
    for _ in range(2):
        host.wait_until_told()
        host.value(lambda: b"x")
        assert kept(host) == 1
        host.values.client.execute_command("CLIENT", "KILL", "TYPE", "NORMAL")  # type: ignore[union-attr]
        eventually(lambda: kept(host) == 0, "it is flushed", 5)
    host.wait_until_told()
    assert host.look() == (b"x", Tier.HOST), "the folder has it"
    own_valkey.kill()
    eventually(lambda: kept(host) == 0 and not host.is_told(), "it is flushed", 5)
    assert host.look() == (b"x", Tier.HOST)
    own_valkey.start()
    eventually(host.is_told, "it is made again", 15)
    reported = [each.detail for each in host.events.of(EventKind.TIER_FAILED)]
    assert len([each for each in reported if each.startswith("push: ")]) == 3, reported


def test_a_connection_that_is_silent_is_given_up(
    make: Make, own_valkey: Valkey, wire_to: Callable[[int], Wire]
) -> None:
    wire = wire_to(own_valkey.port)
    host = make("a", f"valkey://127.0.0.1:{wire.port}/0", timeout=1).wait_until_told()
    host.value(lambda: b"x")
    wire.cut = True
    eventually(lambda: kept(host) == 0 and not host.is_told(), "it is flushed", 10)
    wire.cut = False
    eventually(host.is_told, "it is made again", 15)


def test_everything_goes_when_the_server_is_flushed(make: Make, valkey: str) -> None:
    host = make("a", valkey).wait_until_told()
    host.value(lambda: b"x")
    assert kept(host) == 1
    host.values.client.flushall()  # type: ignore[union-attr]
    eventually(lambda: kept(host) == 0, "it is flushed", 5)


def test_where_the_server_refuses_to_push_hosts_poll_and_it_is_said_once(
    make: Make, own_valkey: Valkey, tmp_path: Path
) -> None:
    a = make("a", own_valkey.url)
    allowed = ("on", ">pw", "~*", "+@all", "-client|tracking")
    a.values.client.execute_command("ACL", "SETUSER", "poor", *allowed)  # type: ignore[union-attr]
    clock = FakeClock()
    poor = f"valkey://poor:pw@127.0.0.1:{own_valkey.port}/0"
    b = Host(tmp_path / "b", None, poor, clock=clock)
    a.value(lambda: b"old", tags=("t",))
    assert b.value(never, tags=("t",)) == b"old"
    eventually(lambda: b.events.count(EventKind.TIER_FAILED) > 0, "it is said")
    (event,) = b.events.of(EventKind.TIER_FAILED)
    assert event.tier is Tier.SHARED
    assert "push" in event.detail
    assert "tracking" in event.detail
    a.cache.invalidate("t")
    assert values(b) == [b"old"], "within the bound"
    clock.advance(5)
    assert values(b) == [None]
    b.close()


@pytest.mark.parametrize("kind", ["own_valkey", "own_cluster"])
def test_the_rights_in_the_guide_are_enough(
    make: Make, request: pytest.FixtureRequest, kind: str
) -> None:
    import valkey

    server: Valkey | ValkeyCluster = request.getfixturevalue(kind)
    rights = "on >pw ~trivet:* +@read +@write +@scripting +@connection +info +time"
    if isinstance(server, ValkeyCluster):
        rights += " +cluster|slots"
    for node in [server] if isinstance(server, Valkey) else server.nodes:
        with valkey.Valkey(port=node.port) as client:
            client.execute_command("ACL", "SETUSER", "few", *rights.split())
    url = server.url.replace("://", "://few:pw@")
    a, b = make("a", url), make("b", url).wait_until_told()
    a.value(lambda: b"old", tags=("t",))
    assert b.value(never, tags=("t",)) == b"old"
    a.cache.invalidate("t")
    eventually(lambda: values(b) == [None], "it is invalid", 5)
    a.cache.forget(key())
    assert not [*a.events.of(EventKind.TIER_FAILED), *b.events.of(EventKind.TIER_FAILED)]


# -- processes and threads ---------------------------------------------------------------------


def pushes() -> int:
    return sum(each.name == "trivet-push" for each in threading.enumerate())


def test_the_thread_begins_with_the_first_look_up_and_ends_with_the_cache(
    make: Make, valkey: str, s3: str, tmp_path: Path
) -> None:
    before = pushes()
    without = make("b", None, s3)
    without.value(lambda: b"x")
    host = Host(tmp_path / "a", None, valkey)
    assert pushes() == before
    host.wait_until_told()
    assert pushes() == before + 1
    started = time.monotonic()
    host.close()
    assert pushes() == before
    assert time.monotonic() - started < 1.0


def test_a_cache_that_nobody_closes_ends_its_thread(valkey: str, tmp_path: Path) -> None:
    before = pushes()
    host = Host(tmp_path / "a", None, valkey)
    host.wait_until_told()
    values_of_it = host.values
    del host
    import gc

    gc.collect()
    eventually(lambda: pushes() == before, "the thread ends", 5)
    assert values_of_it is not None
    values_of_it.close()


UNCLOSED = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.support.hosts import Host
host = Host(Path(sys.argv[2]), None, sys.argv[3])
host.wait_until_told()
print("told")
"""


def test_the_thread_keeps_no_process_alive(valkey: str, tmp_path: Path) -> None:
    assert finish(start(UNCLOSED, HERE, tmp_path / "a", valkey), 30) == "told\n"


FORK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.support.engine import eventually
from tests.support.hosts import Host
from trivet.testing import FakeClock
host = Host(Path(sys.argv[2]), None, sys.argv[3], clock=FakeClock())
host.wait_until_told()
assert host.look()[0] == b"old"
mine = host.values.writer
inner = os.fork()
if inner == 0:
    assert not host.is_told()
    assert host.values.writer != mine
    host.wait_until_told()
assert host.look()[0] == b"old"
print("ready", flush=True)
eventually(lambda: host.look()[0] == b"new", "the new value", 30)
if inner == 0:
    host.close()
    os._exit(0)
assert os.wait()[1] == 0
assert host.is_told()
host.close()
"""


def test_a_forked_child_is_told_by_a_connection_of_its_own(
    make: Make, url: str, tmp_path: Path
) -> None:
    a = make("a", url)
    a.value(lambda: b"old")
    process = start(FORK, HERE, tmp_path / "b", url)
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline() == "ready\n", process.communicate()
    a.rewrite(b"new")
    finish(process)


def test_a_child_does_not_hold_on_to_the_connection_of_a_killed_parent(
    make: Make, own_valkey: Valkey, tmp_path: Path
) -> None:
    code = FORK[: FORK.index("inner =")] + (
        "import signal\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.pause()\n"
        "print(child, flush=True)\n"
        "signal.pause()\n"
    )
    a = make("a", own_valkey.url)
    a.value(lambda: b"old")
    client = a.values.client  # type: ignore[union-attr]

    def tracking() -> int:
        return sum("t" in each["flags"] for each in client.client_list())

    before = tracking()
    process = start(code, HERE, tmp_path / "b", own_valkey.url)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert tracking() == before + 1
    process.kill()
    process.wait()
    eventually(lambda: tracking() == before, "it ends with the parent", 5)
    os.kill(child, 9)
    process.communicate()
