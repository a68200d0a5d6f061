"""Large files in chunks: what is there is not sent again, what is in use is never removed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trivet.entries import FileRecord
from trivet.errors import CorruptEntry, StoreUnavailable
from trivet.stores.files import record_files
from trivet.stores.shared import ObjectStore
from trivet.stores.shared.requests import Requests

COMMON = os.urandom(20 << 20)


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    url = f"file://{tmp_path}/shared"
    if request.param == "s3":
        url = request.getfixturevalue("s3")
    store = ObjectStore(url, timeout=30)
    yield store
    store.close()


def made(folder: Path, content: bytes) -> tuple[Path, FileRecord]:
    folder.mkdir()
    (folder / "file").write_bytes(content)
    return folder / "file", next(record_files(folder))


def kept(store: ObjectStore, below: str = "chunks/") -> dict[str, int]:
    """Objects and their bytes."""
    return {each.name: each.size for each in store.requests.list(below)}


def overwrite(store: ObjectStore, name: str, content: bytes) -> None:
    store.requests.put(name, content)


def test_only_what_is_new_is_sent(store: ObjectStore, tmp_path: Path) -> None:
    a, record_a = made(tmp_path / "a", b"head of a" + COMMON)
    b, record_b = made(tmp_path / "b", b"another head" * 1000 + COMMON + b"tail")
    assert store.send(a, record_a)
    before = kept(store)
    assert sum(before.values()) == record_a.size
    assert store.send(b, record_b)
    new = sum(size for name, size in kept(store).items() if name not in before)
    assert new < record_b.size / 2
    assert not store.send(b, record_b)
    for n, (path, record) in enumerate([(a, record_a), (b, record_b)]):
        store.fetch(record, tmp_path / f"back {n}")
        assert (tmp_path / f"back {n}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "missing"])
def test_a_damaged_chunk_is_found_and_the_others_stay(
    store: ObjectStore, tmp_path: Path, damage: str
) -> None:
    a, record_a = made(tmp_path / "a", os.urandom(6 << 20) + COMMON)
    b, record_b = made(tmp_path / "b", os.urandom(6 << 20) + COMMON)
    store.send(a, record_a)
    own = set(kept(store))
    store.send(b, record_b)
    victim = min(set(kept(store)) - own)  # of b alone
    content = store.requests.get(victim) or b""
    match damage:
        case "flipped":
            overwrite(store, victim, bytes([content[0] ^ 1]) + content[1:])
        case "cut":
            overwrite(store, victim, content[:-1])
        case "emptied":  # as after a power cut, where the store is a folder
            overwrite(store, victim, b"")
        case "missing":
            store.requests.remove(victim)
    with pytest.raises(CorruptEntry):
        store.fetch(record_b, tmp_path / "bad")
    store.discard(record_b)
    assert own <= set(kept(store)), "what the other file is made of is in use"
    store.fetch(record_a, tmp_path / "still good")
    assert (tmp_path / "still good").read_bytes() == a.read_bytes()
    assert store.send(b, record_b)
    store.fetch(record_b, tmp_path / "good")
    assert (tmp_path / "good").read_bytes() == b.read_bytes()


def test_who_dies_while_sending_leaves_nothing_that_can_be_fetched(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, record = made(tmp_path / "a", COMMON)
    real, count = Requests.create, 0

    def dying(self: Requests, name: str, content: bytes) -> bool:
        nonlocal count
        count += 1
        if count > 3:
            raise StoreUnavailable("gone")
        return real(self, name, content)

    with monkeypatch.context() as doomed:
        doomed.setattr(Requests, "create", dying)
        cut_off = ObjectStore(store.url, timeout=30)
        with pytest.raises(StoreUnavailable):
            cut_off.send(path, record)
        cut_off.close()
    assert kept(store, "recipes/") == {}
    with pytest.raises(CorruptEntry, match="missing"):
        store.fetch(record, tmp_path / "nothing")
    assert store.send(path, record)
    store.fetch(record, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == COMMON


@pytest.mark.parametrize(
    "recipe",
    [
        b"",
        b"\xc1",
        [],
        [[b"short", 20 << 20]],
        [[bytes(32), 20 << 20]],
        [[bytes(32), -5], [bytes(32), (20 << 20) + 5]],
        [[bytes(32), 1 << 20]] * 20,
        [[bytes(32), 1 << 20]] * 21,
    ],
)
def test_a_recipe_that_is_not_what_was_written_is_refused(
    store: ObjectStore, tmp_path: Path, recipe: Any
) -> None:
    path, record = made(tmp_path / "a", COMMON)
    store.send(path, record)
    (name,) = kept(store, "recipes/")
    raw = recipe if isinstance(recipe, bytes) else msgspec.msgpack.encode(recipe)
    overwrite(store, name, raw)
    with pytest.raises(CorruptEntry):
        store.fetch(record, tmp_path / "bad")
    store.discard(record)
    assert store.send(path, record)
    store.fetch(record, tmp_path / "good")


def test_a_file_that_changes_while_it_is_sent_is_not_kept(
    store: ObjectStore, tmp_path: Path
) -> None:
    path, record = made(tmp_path / "a", COMMON)
    path.write_bytes(COMMON[:-1] + b"x")
    with pytest.raises(StoreUnavailable, match="changed"):
        store.send(path, record)
    assert kept(store, "recipes/") == {}


def test_without_the_package_that_cuts_a_file_goes_whole(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, record = made(tmp_path / "a", COMMON)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyfastcdc", None)
        assert store.send(path, record)
    assert len(kept(store, "blobs/")) == 1
    assert not store.send(path, record)
    store.fetch(record, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == COMMON
