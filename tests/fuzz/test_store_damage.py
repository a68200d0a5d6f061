"""Damage to every file of the store: never a wrong value, at most one crash, then healed."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.store_entries import artifact_is_whole, entry, payload, publish

from trivet.entries import unseal
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreError
from trivet.stores.host import HostStore
from trivet.testing.crash import run_forked

SMALL = [f"small {i}" for i in range(45)]
LARGE = ["large"]
PLANS = ["plan"]
SIZES = {**dict.fromkeys(SMALL, 700), **dict.fromkeys(LARGE, 90_000)}
CRASHES = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGFPE, -signal.SIGILL}


def make(root: Path) -> None:
    store = HostStore.open(root)
    for name, size in SIZES.items():
        store.write(*entry(name, size, tags={"release": 1}, group="g"))
    for name in PLANS:
        publish(store, name, {"f": 3_000, "g": 10})
    store.raise_epochs(["release"])
    store.raise_epochs(["release"])  # all entries with the tag are invalid: its epoch is 2
    for i in range(0, 45, 3):
        store.evict(entry(SMALL[i])[0])
    store.close()


def use(root: Path) -> None:
    """What an engine does: read, verify, quarantine what is wrong, write again."""
    try:
        store = HostStore.open(root)
        epoch = store.epochs(["release"])["release"]
    except StoreError:
        return  # refused: a miss for every key
    assert epoch not in (0, 1), "an invalidation was rolled back"
    for name, size in SIZES.items():
        digest, sealed = entry(name, size, tags={"release": 1}, group="g")
        try:
            found = store.read(digest)
            if found is not None:
                opened = unseal(found)
                assert bytes(opened.payload) == payload(name, size), "a wrong value"
        except (CorruptEntry, IncompatibleEntry):
            attempt(lambda: store.quarantine(digest, "fuzz"))  # noqa: B023
        except StoreError:
            pass
        attempt(lambda: store.write(digest, sealed))  # noqa: B023
    for name in PLANS:
        attempt(lambda: use_artifact(store, name))  # noqa: B023
    attempt(lambda: list(store.scan()))
    attempt(store.gc)
    attempt(lambda: store.delete(entry(LARGE[0])[0]))


def use_artifact(store: HostStore, name: str) -> None:
    found = store.artifact(entry(name)[0])
    if found is not None:
        try:
            unseal(found[0])
        except (CorruptEntry, IncompatibleEntry):
            store.quarantine(entry(name)[0], "fuzz")
            return
        if not artifact_is_whole(*found):
            store.quarantine(entry(name)[0], "fuzz")
    publish(store, name, {"f": 3_000, "g": 10})


def attempt(work: Callable[[], object]) -> None:
    with suppress(StoreError):
        work()


def is_healthy(root: Path) -> None:
    """Everything can be written and read again."""
    store = HostStore.open(root)
    for name, size in SIZES.items():
        digest, sealed = entry(name, size)
        store.write(digest, sealed)
        found = store.read(digest)
        assert found is not None
        assert bytes(found) == sealed
    for name in PLANS:
        use_artifact(store, name)
        found_artifact = store.artifact(entry(name)[0])
        assert found_artifact is not None
        assert artifact_is_whole(*found_artifact)
    list(store.verify())
    assert all(each.problem is None for each in store.verify())
    store.raise_epochs(["release"])
    store.gc()
    store.close()


def flip(path: Path, rng: random.Random) -> None:
    """One bit somewhere; in the index rather in what is in use."""
    raw = bytearray(path.read_bytes())
    at = rng.randrange(len(raw))
    raw[at] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)


def shred(path: Path, rng: random.Random) -> None:
    """A page of noise."""
    raw = bytearray(path.read_bytes())
    at = rng.randrange(len(raw)) // 4096 * 4096
    raw[at : at + 4096] = rng.randbytes(len(raw[at : at + 4096]))
    path.write_bytes(raw)


def truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def empty(path: Path, rng: random.Random) -> None:
    os.truncate(path, 0)


def lose(path: Path, rng: random.Random) -> None:
    os.unlink(path)


DAMAGES = {each.__name__: each for each in (flip, shred, truncate, empty, lose)}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pristine") / "c"
    assert run_forked(lambda: make(root)) == 0
    return root


def files_of(root: Path) -> list[Path]:
    """One file of each kind; the kinds are what a damage can differ by."""
    kinds: dict[str, Path] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.stat().st_size:
            relative = path.relative_to(root).parts
            name = "/".join(
                relative[-2:] if "artifacts" in relative else (relative[0], path.suffix)
            )
            kinds.setdefault(relative[0] + path.name if len(relative) < 3 else name, path)
    return list(kinds.values())


def survive(root: Path, work: Callable[[], None]) -> None:
    """At most one crash, never a wrong value, healthy in the end."""
    code = run_forked(work)
    assert code == 0 or code in CRASHES, "a wrong value, or an error of another kind"
    if code != 0:
        assert run_forked(lambda: use(root)) == 0, "crashed twice"
    assert run_forked(lambda: is_healthy(root)) == 0, "not healed"


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_gives_no_wrong_value_and_heals(
    pristine: Path, tmp_path: Path, damage: str
) -> None:
    rng = random.Random(damage)
    met = set()
    for number, original in enumerate(files_of(pristine)):
        root = tmp_path / str(number)
        shutil.copytree(pristine, root)
        victim = root / original.relative_to(pristine)
        met.add(victim.relative_to(root).parts[0])
        DAMAGES[damage](victim, rng)
        survive(root, lambda: use(root))  # noqa: B023
        shutil.rmtree(root)
    assert met >= {"index", "objects", "artifacts", "epochs", "generation", "format.json"}


@pytest.mark.parametrize("seed", range(3))
def test_flips_in_the_index_give_no_wrong_value_and_heal(
    pristine: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    for number in range(12):
        root = tmp_path / str(number)
        shutil.copytree(pristine, root)
        for _ in range(rng.choice((1, 1, 1, 30))):
            flip(root / "index/data.mdb", rng)
        survive(root, lambda: use(root))  # noqa: B023
        shutil.rmtree(root)


@pytest.mark.parametrize("damage", ["flip", "shred"])
def test_damage_under_an_open_store_gives_no_wrong_value_and_heals(
    pristine: Path, tmp_path: Path, damage: str
) -> None:
    """The index changes behind the back of a process that has it mapped."""
    rng = random.Random(damage)
    for number in range(4):
        root = tmp_path / str(number)
        shutil.copytree(pristine, root)

        def work() -> None:
            store = HostStore.open(root)  # noqa: B023
            path = root / "index/data.mdb"  # noqa: B023
            raw = path.read_bytes()
            for _ in range(5):
                at = rng.randrange(8192, len(raw))
                with path.open("r+b") as file:
                    file.seek(at if damage == "flip" else at // 4096 * 4096)
                    file.write(rng.randbytes(1 if damage == "flip" else 4096))
                use(root)  # noqa: B023
            assert store.generation() != 0

        survive(root, work)
        shutil.rmtree(root)
