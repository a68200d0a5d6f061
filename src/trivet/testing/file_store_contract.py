"""The tests that every store of artifacts must pass, beyond those of `StoreContract`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trivet.entries import Descriptor, Manifest, seal
from trivet.entries.manifest import ARTIFACT_CODEC
from trivet.errors import StoreError
from trivet.keys import Key
from trivet.stores import FileStore
from trivet.stores.files import record_files
from trivet.testing.store_contract import StoreContract, sealed_entry

_FILES = {"plan.bin": b"plan" * 5_000, "weights/a.bin": b"weights", "empty": b""}


def publish(store: FileStore, name: str, files: dict[str, bytes]) -> tuple[bytes, bytes, Path]:
    """Make ``files`` the artifact ``name``; its digest, sealed manifest and folder."""
    staging = store.staging()
    for each, content in files.items():
        path = staging / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    key = Key("contract/1", {"artifact": name})
    manifest = Manifest(tuple(record_files(staging)))
    payload = manifest.encode()
    size = manifest.size + len(payload)
    facts = Descriptor(codec=ARTIFACT_CODEC, created=1.0, cost=0.5, size=size)
    sealed = seal(key.canonical, facts, payload)
    return key.digest, sealed, store.publish(key.digest, sealed, staging)


def content(folder: Path) -> dict[str, bytes]:
    """Name to content of every file below ``folder``."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


class FileStoreContract(StoreContract):
    """Subclass it like `StoreContract`; the fixture gives a `FileStore`."""

    @pytest.fixture
    def store(self) -> Iterator[FileStore]:
        """An empty, open store; close it afterwards."""
        raise NotImplementedError("override the fixture `store`")

    def test_staging_folders_are_empty_private_and_different(self, store: FileStore) -> None:
        folders = [store.staging() for _ in range(3)]
        assert len(set(folders)) == 3
        for folder in folders:
            assert list(folder.iterdir()) == []
            assert folder.stat().st_mode & 0o022 == 0, "nobody else may write there"

    def test_what_was_published_is_found_whole(self, store: FileStore) -> None:
        digest, sealed, folder = publish(store, "a", _FILES)
        found = store.artifact(digest)
        assert found is not None
        assert (bytes(found[0]), found[1]) == (sealed, folder)
        assert content(folder) == _FILES
        assert store.artifact(bytes(32)) is None

    def test_an_artifact_is_met_by_a_scan_and_read_as_an_entry(self, store: FileStore) -> None:
        digest, sealed, _ = publish(store, "a", _FILES)
        read = store.read(digest)
        assert read is not None
        assert bytes(read) == sealed
        assert [head.digest for head in store.scan()] == [digest]

    def test_an_entry_that_is_no_artifact_has_no_files(self, store: FileStore) -> None:
        digest, sealed = sealed_entry("value", b"value")
        store.write(digest, sealed)
        assert store.artifact(digest) is None

    def test_a_replaced_artifact_stays_usable_for_those_who_have_it_open(
        self, store: FileStore
    ) -> None:
        digest, _, folder = publish(store, "a", _FILES)
        with (folder / "plan.bin").open("rb") as open_file:
            _, sealed, second = publish(store, "a", {"plan.bin": b"other"})
            assert open_file.read() == _FILES["plan.bin"]
        found = store.artifact(digest)
        assert found is not None
        assert bytes(found[0]) == sealed
        assert content(second) == {"plan.bin": b"other"}

    def test_a_deleted_artifact_is_gone_with_its_files(self, store: FileStore) -> None:
        digest, _, folder = publish(store, "a", _FILES)
        assert store.delete(digest)
        assert store.artifact(digest) is None
        assert not any(path.is_file() for path in folder.rglob("*"))

    def test_evicting_is_no_invalidation(self, store: FileStore) -> None:
        digest, _, _ = publish(store, "a", _FILES)
        before = store.generation()
        assert store.evict(digest)
        assert not store.evict(digest)
        assert store.generation() == before
        assert store.artifact(digest) is None

    def test_epochs_start_at_zero_and_only_rise(self, store: FileStore) -> None:
        assert store.epochs(["a", "b"]) == {"a": 0, "b": 0}
        assert store.raise_epochs(["a"]) == {"a": 1}
        assert store.raise_epochs(["a", "c"]) == {"a": 2, "c": 1}
        assert store.epochs(["a", "b", "c"]) == {"a": 2, "b": 0, "c": 1}

    def test_threads_that_raise_an_epoch_lose_none(self, store: FileStore) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: store.raise_epochs(["t"]), range(40)))
        assert store.epochs(["t"]) == {"t": 40}

    def test_the_generation_changes_with_what_live_copies_depend_on(self, store: FileStore) -> None:
        digest, sealed = sealed_entry("a", b"value")
        store.write(digest, sealed)
        seen = [store.generation()]
        store.raise_epochs(["t"])
        seen.append(store.generation())
        store.delete(digest)
        seen.append(store.generation())
        assert len(set(seen)) == 3
        store.touch(digest)
        store.write(digest, sealed)
        assert store.generation() == seen[-1]

    def test_quarantine_moves_an_artifact_aside_with_the_reason(self, store: FileStore) -> None:
        digest, _, folder = publish(store, "a", _FILES)
        report = store.quarantine(digest, "a bit had flipped")
        assert report is not None
        assert store.artifact(digest) is None
        assert not folder.exists()
        told = b"".join(content(report).values())
        assert b"a bit had flipped" in told
        assert store.quarantine(digest, "again") is None

    def test_touching_what_is_not_there_is_nothing(self, store: FileStore) -> None:
        store.touch(bytes(32))
        assert store.read(bytes(32)) is None

    def test_a_process_sees_what_another_published(self, store: FileStore) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                publish(store, "child", _FILES)
                os._exit(0)
            except BaseException:  # noqa: BLE001  the parent sees the status
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        found = store.artifact(Key("contract/1", {"artifact": "child"}).digest)
        assert found is not None
        assert content(found[1]) == _FILES

    def test_artifacts_and_epochs_of_a_closed_store_are_errors(self, store: FileStore) -> None:
        digest, _, _ = publish(store, "a", _FILES)
        store.close()
        with pytest.raises(StoreError):
            store.artifact(digest)
        with pytest.raises(StoreError):
            store.raise_epochs(["t"])
