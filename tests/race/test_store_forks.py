"""Forks of a process whose threads are using the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.forks import Busy, run_in_time
from tests.support.store_entries import artifact_is_whole, entry, publish

from trivet.errors import StoreUnavailable
from trivet.stores.host import HostStore, registry
from trivet.stores.host.disk import locked
from trivet.testing.crash import run_forked

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

LARGE = entry("large", 100_000)
KNOWN = dict(entry(f"k{i}", 500) for i in range(50))


def load(store: HostStore) -> Busy:
    """Threads that use a store."""

    def read() -> None:
        for digest, sealed in KNOWN.items():
            assert store.read(digest) == sealed

    def write() -> None:
        for i in range(20):
            store.write(*entry(f"w{i}", 500))
            store.delete(entry(f"w{i}")[0])

    def scan() -> None:
        assert {each.digest for each in store.scan()} >= set(KNOWN)

    return Busy(read, read, write, scan)


def test_two_hundred_forks_amid_threads_leave_parent_and_children_healthy(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c")
    for each in (*KNOWN.items(), LARGE):
        store.write(*each)
    plan, _ = publish(store, "plan", {"f": 1000})

    def child(number: int) -> None:
        for digest, sealed in list(KNOWN.items())[number % 50 :][:3]:
            assert store.read(digest) == sealed
        found = store.read(LARGE[0])
        assert found is not None
        assert bytes(found) == LARGE[1]
        artifact = store.artifact(plan)
        assert artifact is not None
        assert artifact_is_whole(*artifact)
        mine = entry(f"child {number}", 500)
        store.write(*mine)
        assert store.read(mine[0]) == mine[1]

    with load(store) as busy:
        for number in range(200):
            assert run_in_time(lambda: child(number)) == 0, number  # noqa: B023
            assert store.read(entry(f"child {number}")[0]) is not None
            assert not busy.failures
    assert not busy.failures
    assert all(each.problem is None for each in store.verify())
    assert store.stats().readers < 50, "children's readers are cleared"
    store.close()


def test_a_child_that_leaves_by_exit_does_not_harm_the_parent(tmp_path: Path) -> None:
    """Not by `os._exit`: the interpreter collects everything, the inherited index too."""
    code = """
import os, sys
from tests.support.forks import Busy, run_in_time
from tests.support.store_entries import entry
from trivet.stores.host import HostStore
store = HostStore.open(sys.argv[1])
store.write(*entry("a"))
if os.fork() == 0:
    if sys.argv[2] == "use":
        assert store.read(entry("a")[0]) == entry("a")[1]
    sys.exit(0)
assert os.wait()[1] == 0
assert store.read(entry("a")[0]) == entry("a")[1]
store.write(*entry("b"))
assert len(list(store.scan())) == 2
assert len(list((store.root / "running").iterdir())) == 1
store.close()
"""
    for use in ("use", "leave"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / use), use],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert done.returncode == 0


def test_grandchildren_use_the_store(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c")
    store.write(*entry("a"))

    def child() -> None:
        assert store.read(entry("a")[0]) is not None

        def grandchild() -> None:
            store.write(*entry("b"))

        assert run_forked(grandchild) == 0
        assert store.read(entry("b")[0]) is not None

    assert run_forked(child) == 0
    assert store.read(entry("b")[0]) is not None
    store.close()


def test_a_fork_in_the_middle_of_an_operation_costs_the_child_the_store_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_FORK_PATIENCE", 0.05)
    store = HostStore.open(tmp_path / "c")
    store.write(*entry("a"))
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with store.folder.env.read() as txn:
            inside.set()
            leave.wait()
            assert txn.get(entry("a")[0], db=store.folder.env.entries)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()

    def child() -> None:
        for work in (lambda: store.read(entry("a")[0]), lambda: store.write(*entry("b"))):
            with pytest.raises(StoreUnavailable, match="forked while"):
                work()

    assert run_forked(child) == 0
    readers = store.stats().readers
    assert readers >= 1
    with store.folder.env.write() as txn:  # the old page would be reused without its reader
        txn.put(b"x", b"y", db=store.folder.env.totals)
        txn.delete(b"x", db=store.folder.env.totals)
    leave.set()
    thread.join()
    assert store.read(entry("a")[0]) == entry("a")[1]
    store.close()


def test_a_fork_that_begins_during_another_thread_s_takes_nothing_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second fork gives up its wait; the first one then let go of nothing."""
    monkeypatch.setattr(registry, "_FORK_PATIENCE", 0.05)
    store = HostStore.open(tmp_path / "c")
    store.write(*entry("a"))
    begun, end = threading.Event(), threading.Event()

    def slow_fork() -> None:
        registry._before_fork()
        begun.set()
        end.wait()
        registry._after_fork_in_parent()

    def child() -> None:
        with pytest.raises(StoreUnavailable, match="forked while"):
            store.write(*entry("b"))

    first = threading.Thread(target=slow_fork, daemon=True)
    first.start()
    begun.wait()
    assert run_in_time(child) == 0
    assert not store.folder.env.attached, "the first fork still keeps it closed"
    end.set()
    first.join()
    assert store.folder.env.attached
    assert store.read(entry("a")[0]) == entry("a")[1]
    opened = threading.Thread(target=lambda: HostStore.open(tmp_path / "d").close(), daemon=True)
    opened.start()
    opened.join(30)
    assert not opened.is_alive(), "nobody holds the registry"
    store.close()


def test_threads_that_fork_at_the_same_time_leave_everybody_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_FORK_PATIENCE", 0.001)  # many give up
    store = HostStore.open(tmp_path / "c")
    for known in KNOWN.items():
        store.write(*known)

    def child() -> None:
        with suppress(StoreUnavailable):  # forked while the index was in use
            assert store.read(entry("k1", 500)[0]) == KNOWN[entry("k1", 500)[0]]

    codes: list[int] = []
    forks = [
        threading.Thread(target=lambda: codes.extend(run_in_time(child) for _ in range(25)))
        for _ in range(4)
    ]
    with load(store) as busy:
        for each in forks:
            each.start()
        for each in forks:
            each.join()
    assert codes == [0] * 100
    assert not busy.failures
    HostStore.open(tmp_path / "d").close()
    assert all(each.problem is None for each in store.verify())
    store.close()


def test_a_fork_without_hooks_is_survived_when_nothing_was_under_way(tmp_path: Path) -> None:
    """As by a server in C that forks and then tells Python so: only the child's hook runs."""
    store = HostStore.open(tmp_path / "c")
    store.write(*entry("a"))

    def child() -> None:
        # What `run_forked` did by its hooks is undone: as if no hook had run before the fork.
        store.folder.refresh(create=True)
        assert store.read(entry("a")[0]) is not None
        registry._after_fork_in_child()
        assert store.read(entry("a")[0]) == entry("a")[1]
        store.write(*entry("b"))

    assert run_forked(child) == 0
    assert store.read(entry("b")[0]) is not None
    store.close()


def test_a_lock_that_another_thread_holds_during_a_fork_is_free_when_it_lets_go(
    tmp_path: Path,
) -> None:
    path, entered, leave = tmp_path / "lock", threading.Event(), threading.Event()

    def hold() -> None:
        with locked(path):
            entered.set()
            leave.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait(30)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # lives on until the parent is done
        os.close(writing)
        os.read(reading, 1)
        with locked(path, patience=5.0):
            os._exit(0)
    os.close(reading)
    leave.set()
    holder.join()
    with locked(path, patience=5.0):
        pass
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_lock_does_not_live_on_in_a_forked_child_when_its_holder_is_killed(
    tmp_path: Path,
) -> None:
    path, (reading, writing), (told, tell) = tmp_path / "lock", os.pipe(), os.pipe()
    holder = os.fork()
    if holder == 0:
        os.close(writing)
        with locked(path):
            if os.fork() == 0:
                os.write(tell, b"x")
                os.read(reading, 1)  # until the test is done
                os._exit(0)
            signal.pause()
    os.close(reading)
    assert os.read(told, 1) == b"x"
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    with locked(path, patience=5.0):
        pass
    for descriptor in (writing, told, tell):
        os.close(descriptor)
