"""`kill -9` between any two steps of a change: old, new or nothing, and nothing left behind."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.store_entries import artifact_is_whole, entry, files_below, publish

from trivet.stores.host import HostStore
from trivet.stores.host.catalog import Catalog
from trivet.stores.host.environment import Environment
from trivet.testing.crash import Steps, kill_at_step, run_killed

LARGE = 200_000
BYSTANDERS = [entry("by small"), entry("by large", LARGE)]


# So that a change of the code can't turn the tests into ones that kill nobody: 220 in all.
LEAST_KILLS = {
    "write small": 11,
    "write large": 19,
    "publish": 34,
    "delete large": 13,
    "delete artifact": 18,
    "evict artifact": 16,
    "raise epochs": 11,
    "quarantine": 17,
    "collect": 8,
    "open": 48,
    "rebuild": 25,
}


def arm(count: int) -> Steps:
    """Kill at a step; the parts of an index transaction count as steps."""
    steps = kill_at_step(count)
    steps.wrap(Catalog, "insert")
    steps.wrap(Catalog, "remove")
    real = Environment.write

    @contextmanager
    def write(self: Environment) -> Iterator[Any]:
        with real(self) as txn:
            yield txn
            steps.step()  # before the commit
        steps.step()  # after it

    Environment.write = write  # type: ignore[method-assign, assignment]
    return steps


def prepare(root: Path) -> None:
    store = HostStore.open(root)
    for each in BYSTANDERS:
        store.write(*each)
    publish(store, "by plan", {"f": 1000})
    store.write(*entry("small", 100, version="old"))
    store.write(*entry("large", LARGE, version="old"))
    publish(store, "plan", {"f": 5000, "sub/g": 100}, version="old")
    store.raise_epochs(["t"])
    store.close()


def check(root: Path) -> None:
    """Every entry is whole, of one version or the other, or absent; bystanders are unharmed."""
    store = HostStore.open(root)
    for digest, sealed in BYSTANDERS:
        assert store.read(digest) == sealed
    for name, size in (("small", 100), ("large", LARGE)):
        digest = entry(name)[0]
        found = store.read(digest)
        versions = [entry(name, size, version=version)[1] for version in ("old", "new")]
        assert found is None or bytes(found) in versions
    for name in ("by plan", "plan"):
        artifact = store.artifact(entry(name)[0])
        assert name == "plan" or artifact is not None
        assert artifact is None or artifact_is_whole(*artifact)
    assert 1 <= store.epochs(["t"])["t"] < 1000, "neither lost nor taken for damaged"
    assert all(each.problem is None for each in store.verify())
    store.gc()
    files = [name for name in files_below(root) if not name.startswith(("staging", "trash"))]
    kept = [each for each in store.items() if each.size > 100_000 or each.is_artifact]
    assert len(files) == len(kept), "an orphan was left"
    assert [name for name in files_below(root) if name.startswith(("staging", "trash"))] == []
    for name, size in (("small", 100), ("large", LARGE)):  # and it can be written again
        digest, sealed = entry(name, size, version="new")
        store.write(digest, sealed)
        assert store.read(digest) == sealed
    publish(store, "plan", {"f": 5000, "sub/g": 100}, version="new")
    store.close()


CHANGES: dict[str, Callable[[HostStore], object]] = {
    "write small": lambda store: store.write(*entry("small", 100, version="new")),
    "write large": lambda store: store.write(*entry("large", LARGE, version="new")),
    "publish": lambda store: publish(store, "plan", {"f": 5000, "sub/g": 100}, version="new"),
    "delete large": lambda store: store.delete(entry("large")[0]),
    "delete artifact": lambda store: store.delete(entry("plan")[0]),
    "evict artifact": lambda store: store.evict(entry("plan")[0]),
    "raise epochs": lambda store: store.raise_epochs(["t"]),
    "quarantine": lambda store: store.quarantine(entry("plan")[0], "test"),
    "collect": lambda store: store.gc(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_kill_at_any_step_of_a_change_harms_nothing(tmp_path: Path, name: str) -> None:
    root = tmp_path / "c"
    prepare(root)

    for count in itertools.count(1):

        def work() -> None:
            store = HostStore.open(root)
            arm(count)  # noqa: B023
            CHANGES[name](store)

        if not run_killed(work):
            break
        check(root)
    assert count > LEAST_KILLS[name], "steps are no longer counted"
    check(root)


def test_a_kill_at_any_step_of_the_first_opening_leaves_a_usable_folder(tmp_path: Path) -> None:
    for count in itertools.count(1):
        root = tmp_path / str(count)

        def work() -> None:
            arm(count)  # noqa: B023
            HostStore.open(root).write(*entry("a"))  # noqa: B023

        if not run_killed(work):
            break
        store = HostStore.open(root)
        assert store.read(entry("a")[0]) in (None, entry("a")[1])
        assert store.epochs(["t"])["t"] == 0
        store.write(*entry("a"))
        assert store.read(entry("a")[0]) == entry("a")[1]
        store.close()
    assert count > LEAST_KILLS["open"]


def test_a_kill_at_any_step_of_a_rebuild_loses_no_file(tmp_path: Path) -> None:
    root = tmp_path / "c"
    for count in itertools.count(1):
        store = HostStore.open(root)
        store.write(*entry("large", LARGE))
        digest, _ = publish(store, "plan", {"f": 10})
        store.close()

        def work() -> None:
            store = HostStore.open(root)
            arm(count)  # noqa: B023
            store.rebuild()

        killed = run_killed(work)
        store = HostStore.open(root)
        assert store.read(entry("large")[0]) is not None
        assert store.artifact(digest) is not None
        store.close()
        if not killed:
            break
    assert count > LEAST_KILLS["rebuild"]


WRITER = """
import sys
from tests.support.store_entries import entry, publish
from trivet.stores.host import HostStore
store = HostStore.open(sys.argv[1], budget_bytes=3_000_000)
print("ready", flush=True)
for i in range(10**9):
    store.write(*entry(f"w{i % 50}", 100, version=str(i)))
    store.write(*entry(f"l{i % 20}", 100_000, version=str(i)))
    publish(store, f"p{i % 5}", {"f": 1000, "g": 50_000}, version=str(i))
    store.delete(entry(f"w{i % 7}")[0])
"""


def test_kills_at_random_times_leave_whole_entries(tmp_path: Path) -> None:
    root, rng = tmp_path / "c", random.Random(7)
    for _ in range(8):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(root)],
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.0, 0.15))  # a random moment, not a wait for something
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
        store = HostStore.open(root)
        assert all(each.problem is None for each in store.verify())
        store.write(*entry("after"))
        assert store.read(entry("after")[0]) == entry("after")[1]
        store.gc()
        assert not [name for name in files_below(root) if name.startswith(("staging", "trash"))]
        store.close()
