"""The tests that every store must pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from trivet.entries import Descriptor, peek, seal, unseal
from trivet.errors import StoreError
from trivet.keys import Key
from trivet.stores import Store

_ODD_DIGESTS = (
    bytes(32),
    b"\xff" * 32,
    b"\n" * 32,
    b"/" * 32,
    b"\0" * 31 + b"\1",
    b"\1" + b"\0" * 31,
    b"../../../../../../../etc/passwd\0",
)


def sealed_entry(name: str, payload: bytes, *, created: float = 1.0) -> tuple[bytes, bytes]:
    """Digest and sealed bytes of a small entry."""
    key = Key("contract/1", {"name": name})
    facts = Descriptor(codec="bytes/1", created=created, cost=0.5, size=len(payload))
    return key.digest, seal(key.canonical, facts, payload)


class StoreContract:
    """Subclass it in a test module, override the fixture, and pytest runs the suite.

    ::

        from trivet.testing import StoreContract

        class TestMyStore(StoreContract):
            @pytest.fixture
            def store(self, tmp_path):
                store = MyStore(tmp_path)
                yield store
                store.close()
    """

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        """An empty, open store; close it afterwards."""
        raise NotImplementedError("override the fixture `store`")

    def test_an_empty_store_has_nothing(self, store: Store) -> None:
        assert store.read(bytes(32)) is None
        assert store.delete(bytes(32)) is False
        assert list(store.scan()) == []

    def test_what_was_written_is_read(self, store: Store) -> None:
        digest, sealed = sealed_entry("a", b"value")
        store.write(digest, sealed)
        assert _bytes(store.read(digest)) == sealed
        assert store.read(sealed_entry("b", b"")[0]) is None

    def test_an_empty_payload_is_an_entry(self, store: Store) -> None:
        digest, sealed = sealed_entry("empty", b"")
        store.write(digest, sealed)
        assert _bytes(store.read(digest)) == sealed

    def test_a_second_write_replaces(self, store: Store) -> None:
        digest, first = sealed_entry("a", b"first")
        _, second = sealed_entry("a", b"second, and longer" * 50)
        for sealed in (first, second, first):
            store.write(digest, sealed)
            assert _bytes(store.read(digest)) == sealed
        assert [head.digest for head in store.scan()] == [digest]

    def test_delete_forgets_once(self, store: Store) -> None:
        digest, sealed = sealed_entry("a", b"value")
        other, other_sealed = sealed_entry("b", b"other")
        store.write(digest, sealed)
        store.write(other, other_sealed)
        assert store.delete(digest) is True
        assert store.delete(digest) is False
        assert store.read(digest) is None
        assert _bytes(store.read(other)) == other_sealed

    def test_a_deleted_entry_can_be_written_again(self, store: Store) -> None:
        digest, sealed = sealed_entry("a", b"value")
        store.write(digest, sealed)
        store.delete(digest)
        store.write(digest, sealed)
        assert _bytes(store.read(digest)) == sealed

    def test_odd_digests_are_digests(self, store: Store) -> None:
        entries = {
            digest: sealed_entry(str(i), b"%d" % i)[1] for i, digest in enumerate(_ODD_DIGESTS)
        }
        for digest, sealed in entries.items():
            store.write(digest, sealed)
        for digest, sealed in entries.items():
            assert _bytes(store.read(digest)) == sealed
        assert {head.digest for head in store.scan()} == set(entries)
        for digest in entries:
            assert store.delete(digest)
        assert list(store.scan()) == []

    def test_values_of_all_sizes(self, store: Store) -> None:
        for size in (1, 4_000, 4_096, 65_537, 1 << 20, (8 << 20) + 3):
            digest, sealed = sealed_entry(str(size), b"\xa5" * size)
            store.write(digest, sealed)
            assert _bytes(store.read(digest)) == sealed
        heads = {head.digest: head.head for head in store.scan()}
        assert len(heads) == 6

    def test_a_scan_meets_every_entry_with_its_head(self, store: Store) -> None:
        written = dict(sealed_entry(str(i), bytes(i * 37)) for i in range(300))
        for digest, sealed in written.items():
            store.write(digest, sealed)
        met = list(store.scan())
        assert len(met) == 300
        for digest, head in met:
            expected = unseal(written[digest])
            key, descriptor = peek(head)
            assert key == expected.key
            assert descriptor == expected.descriptor

    def test_a_scan_bears_changes(self, store: Store) -> None:
        written = dict(sealed_entry(str(i), b"x" * 100) for i in range(100))
        for digest, sealed in written.items():
            store.write(digest, sealed)
        met: set[bytes] = set()
        for digest, _ in store.scan():
            met.add(digest)
            store.delete(digest)
            store.write(*sealed_entry(f"new {len(met) % 10}", b"y"))
            if len(met) > 200:
                break
        assert set(written) <= met, "entries that nobody changed before they were met"

    def test_a_scan_that_is_left_early_holds_nothing(self, store: Store) -> None:
        written = dict(sealed_entry(str(i), b"x") for i in range(10))
        for digest, sealed in written.items():
            store.write(digest, sealed)
        for _ in range(200):  # more than any limit on concurrent readers
            next(iter(store.scan()))
        assert len(list(store.scan())) == 10

    def test_a_view_outlives_replacement_and_deletion(self, store: Store) -> None:
        digest, first = sealed_entry("a", b"first" * 1_000)
        store.write(digest, first)
        view = store.read(digest)
        store.write(digest, sealed_entry("a", b"other" * 1_000)[1])
        store.delete(digest)
        for i in range(50):
            store.write(*sealed_entry(str(i), b"filler" * 900))
        assert _bytes(view) == first

    def test_readers_see_the_old_or_the_new_value_whole(self, store: Store) -> None:
        versions = [
            sealed_entry("a", bytes([65 + i]) * (3_000 * (i + 1)), created=float(i))[1]
            for i in range(4)
        ]
        digest = sealed_entry("a", b"")[0]
        store.write(digest, versions[0])
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                assert _bytes(store.read(digest)) in versions

        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read) for _ in range(3)]
            try:
                for i in range(200):
                    store.write(digest, versions[i % 4])
            finally:
                done.set()
            for reader in readers:
                reader.result()

    def test_threads_write_side_by_side(self, store: Store) -> None:
        def write(name: str) -> None:
            for i in range(50):
                digest, sealed = sealed_entry(f"{name}{i}", name.encode() * i)
                store.write(digest, sealed)
                assert _bytes(store.read(digest)) == sealed
                if i % 2:
                    assert store.delete(digest)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, "abcd"))
        assert len(list(store.scan())) == 4 * 25

    def test_closing_twice_is_fine_and_use_afterwards_is_an_error(self, store: Store) -> None:
        digest, sealed = sealed_entry("a", b"value")
        store.write(digest, sealed)
        store.close()
        store.close()
        with pytest.raises(StoreError):
            store.read(digest)
        with pytest.raises(StoreError):
            store.write(digest, sealed)
        with pytest.raises(StoreError):
            store.delete(digest)
        with pytest.raises(StoreError):
            list(store.scan())


def _bytes(found: bytes | memoryview | None) -> bytes | None:
    return None if found is None else bytes(found)
