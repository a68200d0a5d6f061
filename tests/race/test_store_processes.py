"""Several processes on one folder: writing, evicting, wiping, rebuilding beside each other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.store_entries import artifact_is_whole, entry, publish

from trivet import Cache
from trivet.cache import Miss
from trivet.codecs import MsgPack
from trivet.keys import Key
from trivet.stores.host import HostStore, check
from trivet.testing import FakeClock
from trivet.testing.crash import die, run_forked

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

WORKER = """
import random, sys
from tests.support.store_entries import artifact_is_whole, entry, publish
from trivet.entries import unseal
from trivet.errors import StoreError
from trivet.stores.host import HostStore
root, seed, rounds, budget = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
store = HostStore.open(root, budget_bytes=budget)
print("ready", flush=True)
sys.stdin.readline()
hits = 0
for i in range(rounds):
    name, size = f"e{rng.randrange(60)}", rng.choice((200, 2_000, 50_000))
    digest, sealed = entry(name, size)
    try:
        found = store.read(digest)
        if found is not None:
            opened = unseal(found)
            assert bytes(opened.key) == bytes(unseal(sealed).key)
            hits += 1
        if i % 10 == 0:
            artifact = store.artifact(entry(f"p{rng.randrange(4)}")[0])
            if artifact is not None:
                open(artifact[1] / "f", "rb").close()
            publish(store, f"p{rng.randrange(4)}", {"f": 20_000})
        elif i % 17 == 0:
            store.delete(digest)
        elif i % 31 == 0:
            store.raise_epochs([f"t{rng.randrange(3)}"])
        else:
            store.write(digest, sealed)
        store.touch(digest)
    except (StoreError, FileNotFoundError) as error:
        if "--tolerant" not in sys.argv:
            if not isinstance(error, FileNotFoundError):
                raise
store.close()
print(hits, flush=True)
"""


def start(root: Path, count: int, rounds: int, budget: int, *more: str) -> list[subprocess.Popen]:  # type: ignore[type-arg]
    """Workers that have opened the store and wait for the word."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(root), str(i), str(rounds), str(budget), *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        for i in range(count)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return workers


def finish(workers: list[subprocess.Popen]) -> int:  # type: ignore[type-arg]
    """Hits of all workers; they must have ended well."""
    hits = 0
    for worker in workers:
        out, _ = worker.communicate(timeout=120)
        assert worker.returncode == 0
        hits += int(out)
    return hits


def test_processes_write_read_delete_and_evict_side_by_side(tmp_path: Path) -> None:
    root = tmp_path / "c"
    assert finish(start(root, 4, 200, 600_000)) > 50
    store = HostStore.open(root, budget_bytes=600_000)
    assert all(each.problem is None for each in store.verify())
    stats = store.stats()
    items = list(store.items())
    assert (stats.entries, stats.size) == (len(items), sum(each.size for each in items))
    assert stats.size <= 600_000
    assert store.gc().orphans == 0, "every replaced and evicted file was removed by who did it"
    assert len(os.listdir(root / "running")) == 1
    store.close()


def test_a_wipe_while_processes_work_loses_entries_only(tmp_path: Path) -> None:
    root = tmp_path / "c"
    workers = start(root, 3, 250, 10_000_000, "--tolerant")
    for _ in range(5):
        while not (root / "objects").is_dir() or not any((root / "objects").iterdir()):
            if all(worker.poll() is not None for worker in workers):
                break
        shutil.rmtree(root, ignore_errors=True)
    finish(workers)
    store = HostStore.open(root)
    assert all(each.problem is None for each in store.verify())
    digest, _ = publish(store, "after", {"f": 10})
    found = store.artifact(digest)
    assert found is not None
    assert artifact_is_whole(*found)
    store.write(*entry("after 2"))
    assert store.read(entry("after 2")[0]) is not None
    store.close()


def test_rebuilds_and_clears_while_processes_work_lose_entries_only(tmp_path: Path) -> None:
    root = tmp_path / "c"
    workers = start(root, 3, 200, 10_000_000, "--tolerant")
    store = HostStore.open(root)
    for _ in range(3):
        store.rebuild()
        store.clear()
        store.gc()
    finish(workers)
    assert all(each.problem is None for each in store.verify())
    store.gc()
    store.write(*entry("after"))
    assert store.read(entry("after")[0]) is not None
    store.close()


def test_processes_that_open_an_empty_folder_at_once_agree(tmp_path: Path) -> None:
    root = tmp_path / "c"
    code = """
import sys
from tests.support.store_entries import entry
from trivet.stores.host import HostStore
store = HostStore.open(sys.argv[1])
store.write(*entry(sys.argv[2]))
sys.stdout.write("done")
sys.stdout.flush()
sys.stdin.readline()
"""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(root), str(i)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        for i in range(8)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.read(4) == b"done"
    store = HostStore.open(root)
    assert all(store.read(entry(str(i))[0]) == entry(str(i))[1] for i in range(8))
    store.close()
    for worker in workers:
        worker.communicate(b"\n")
        assert worker.returncode == 0


def test_readers_that_died_are_cleared_by_a_collection(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c")
    store.write(*entry("a"))

    def die_reading() -> None:
        with store.folder.env.read():
            die()

    for _ in range(5):
        assert run_forked(die_reading) == -signal.SIGKILL
    assert store.folder.env.clear_dead_readers() <= 5
    for _ in range(5):
        assert run_forked(die_reading) == -signal.SIGKILL
    store.gc()
    assert store.folder.env.clear_dead_readers() == 0
    assert store.read(entry("a")[0]) == entry("a")[1]
    store.close()


INVALIDATES = """
import sys
from trivet import Cache
with Cache.open(sys.argv[1], strict=True) as cache:
    cache.invalidate("t")
"""


def _invalidate_elsewhere(root: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", INVALIDATES, str(root)], check=True, env=ENVIRONMENT, timeout=60
    )


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_an_invalidation_in_a_folder_that_took_the_place_of_ours_reaches_us(
    memory: int, tmp_path: Path
) -> None:
    root, key, codec, clock = tmp_path / "c", Key("value/1", {"n": 1}), MsgPack(int), FakeClock()
    with Cache.open(root, memory_bytes=memory, clock=clock) as cache:
        cache.get_or_compute(key, lambda: 1, codec, tags=["t"])
        shutil.rmtree(root)
        _invalidate_elsewhere(root)
        clock.advance(1.0)
        assert isinstance(cache.get(key, codec), Miss)


def test_a_folder_restored_from_a_copy_revives_nothing_in_a_living_process(tmp_path: Path) -> None:
    root, copy, clock = tmp_path / "c", tmp_path / "copy", FakeClock()
    key, codec = Key("value/1", {"n": 1}), MsgPack(int)
    with Cache.open(root, clock=clock) as cache:
        shutil.copytree(root, copy)
        _invalidate_elsewhere(root)
        cache.get_or_compute(key, lambda: 1, codec, tags=["t"])
        shutil.rmtree(root)
        copy.rename(root)
        _invalidate_elsewhere(root)  # the same generation and epoch as before, of another history
        clock.advance(1.0)
        assert isinstance(cache.get(key, codec), Miss)


GROW = """
import sys
from tests.support.store_entries import entry
from trivet.stores.host import HostStore
store = HostStore.open(sys.argv[1])
store.write(*entry("first"))
print("ready", flush=True)
for i in range(2000):
    store.write(*entry(f"grow {i}", 2000))
store.close()
"""


def test_an_index_that_grows_while_it_is_opened_is_not_taken_for_damaged(tmp_path: Path) -> None:
    """Who opens it looks at its length and at what it says of its length, one after the other."""
    writer = subprocess.Popen(
        [sys.executable, "-c", GROW, str(tmp_path)], stdout=subprocess.PIPE, env=ENVIRONMENT
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        data, found, looks = next(tmp_path.rglob("data.mdb")), set[str | None](), 0
        while writer.poll() is None:
            found.add(check.truncation(data))
            looks += 1
    assert writer.returncode == 0
    assert found == {None}
    assert looks > 1000
