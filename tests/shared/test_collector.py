"""What nothing names goes from an object store; what somebody names, or is about to, stays."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cli import trivet
from tests.support.engine import key, start
from tests.support.hosts import Host, never
from tests.support.servers import S3

from trivet.entries import Descriptor, FileRecord, seal
from trivet.errors import StoreUnavailable
from trivet.stores.files import record_files
from trivet.stores.shared import ObjectStore
from trivet.stores.shared.chunks import Chunks
from trivet.stores.shared.collector import Collected, Tally, collect
from trivet.stores.shared.marks import read_marks, write_marks

WORD = b"plan"
DAY = 86400.0


class Bucket:
    """A folder that stands for a bucket, whose time can pass."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = f"file://{root}"

    def let_pass(self, seconds: float) -> None:
        """Make everything that much older."""
        for each in self.root.rglob("*"):
            if each.is_file():
                at = each.stat().st_mtime - seconds
                os.utime(each, (at, at))
        store = self.open()
        marks = read_marks(store.requests)
        if marks:
            (self.root / "collection").mkdir(exist_ok=True)
            write_marks(store.requests, {name: at - seconds for name, at in marks.items()})
        store.close()

    def open(self) -> ObjectStore:
        return ObjectStore(self.url)

    def collect(self, age: float = DAY) -> Collected:
        store = self.open()
        try:
            return collect(store, age=age)
        finally:
            store.close()

    def names(self, kind: str = "") -> set[str]:
        found = {
            str(each.relative_to(self.root)) for each in self.root.rglob("*") if each.is_file()
        }
        return {each for each in found if each.startswith(kind)}


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    (tmp_path / "bucket").mkdir()
    return Bucket(tmp_path / "bucket")


@pytest.fixture
def host(tmp_path: Path, bucket: Bucket) -> Iterator[Host]:
    host = Host(tmp_path / "a", bucket.url)
    yield host
    host.close()


def numbers(tallies: dict[str, Tally]) -> dict[str, int]:
    return {kind: each.number for kind, each in tallies.items() if each.number}


def made(folder: Path, content: bytes) -> tuple[Path, FileRecord]:
    folder.mkdir()
    (folder / "file").write_bytes(content)
    return folder / "file", next(record_files(folder))


def an_old_file(bucket: Bucket, folder: Path, content: bytes) -> tuple[Path, FileRecord]:
    """One that nothing names, sent two days ago."""
    path, record = made(folder, content)
    store = bucket.open()
    store.send(path, record)
    store.close()
    bucket.let_pass(2 * DAY)
    return path, record


def test_what_is_unused_is_marked_and_goes_a_day_later(
    bucket: Bucket, host: Host, tmp_path: Path
) -> None:
    host.plan(WORD)  # in chunks, a small file, and a manifest
    used = bucket.names()
    an_old_file(bucket, tmp_path / "large", os.urandom(9 << 20))
    an_old_file(bucket, tmp_path / "small", b"small")
    garbage = bucket.names() - used
    assert len(garbage) >= 4

    first = bucket.collect()
    assert numbers(first.removed) == {}
    assert sum(numbers(first.marked).values()) == len(garbage)
    assert garbage <= bucket.names()
    bucket.let_pass(DAY / 2)
    assert numbers(bucket.collect().removed) == {}, "marked for half a day"
    bucket.let_pass(DAY)
    second = bucket.collect()
    assert sum(numbers(second.removed).values()) == len(garbage)
    assert sum(each.size for each in second.removed.values()) > 9 << 20
    assert bucket.names() - bucket.names("collection/") == used
    assert numbers(bucket.collect().marked) == {}
    other = Host(tmp_path / "b", bucket.url)
    assert other.plan(None) == (WORD, False)
    other.close()


def test_what_is_young_is_not_even_marked(bucket: Bucket, tmp_path: Path) -> None:
    path, record = made(tmp_path / "young", os.urandom(9 << 20))
    store = bucket.open()
    store.send(path, record)
    store.close()
    assert numbers(bucket.collect().marked) == {}
    (bucket.root / "recipes" / record.blake3.hex()).unlink()  # as while it is sent
    assert numbers(bucket.collect().marked) == {}


def test_chunks_of_a_recipe_that_is_about_to_be_named_stay(bucket: Bucket, tmp_path: Path) -> None:
    """The chunks are old, sent for another file once; the recipe is of now, its entry to come."""
    content = os.urandom(9 << 20)
    _, old = an_old_file(bucket, tmp_path / "old", content)
    (bucket.root / "recipes" / old.blake3.hex()).unlink()
    path, record = made(tmp_path / "new", content + b"more")
    store = bucket.open()
    store.send(path, record)
    for _ in range(2):
        bucket.collect(age=DAY)
    store.fetch(record, tmp_path / "back")
    store.close()


def test_a_writer_in_the_middle_is_not_robbed(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds old chunks that nothing names any more; then they are marked; then it goes on."""
    content = os.urandom(9 << 20)
    _, old = an_old_file(bucket, tmp_path / "old", content)
    (bucket.root / "recipes" / old.blake3.hex()).unlink()
    path, record = made(tmp_path / "new", content + b"more")
    store, looked, marked = bucket.open(), threading.Event(), threading.Event()
    real = Chunks._send_one

    def slowly(self: Chunks, digest: bytes, data: bytes) -> int:
        sent = real(self, digest, data)
        looked.set()
        assert marked.wait(60)
        return sent

    monkeypatch.setattr(Chunks, "_send_one", slowly)
    thread = threading.Thread(target=store.send, args=(path, record))
    thread.start()
    assert looked.wait(60)
    assert numbers(bucket.collect().marked)
    bucket.let_pass(DAY / 2)
    assert numbers(bucket.collect().removed) == {}
    marked.set()
    thread.join(60)
    bucket.let_pass(DAY / 4)
    bucket.collect()
    store.fetch(record, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    store.close()


@pytest.mark.parametrize("size", [1000, 9 << 20])
def test_what_is_marked_is_sent_again_and_stays(bucket: Bucket, tmp_path: Path, size: int) -> None:
    path, record = an_old_file(bucket, tmp_path / "a", os.urandom(size))
    bucket.collect()
    bucket.let_pass(2 * DAY)
    store = bucket.open()
    assert store.send(path, record), "it is there, but not for long"
    assert not numbers(bucket.collect().removed)
    store.fetch(record, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    store.close()


def test_what_is_sent_again_while_it_is_collected_stays(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, record = an_old_file(bucket, tmp_path / "a", b"small")
    bucket.collect()
    bucket.let_pass(2 * DAY)

    def write(requests: object, marks: dict[str, float]) -> None:
        store = bucket.open()
        assert store.send(path, record)
        store.close()

    monkeypatch.setattr("trivet.stores.shared.collector.write_marks", write)
    assert numbers(bucket.collect().removed) == {}
    assert len(bucket.names("blobs/")) == 1


def test_entries_that_nobody_can_use_go_with_what_they_name(
    bucket: Bucket, host: Host, tmp_path: Path
) -> None:
    host.plan(WORD, tags=("release=1",))
    host.value(lambda: b"short", name=key("short"), lifetime=60)
    host.value(lambda: b"kept", name=key("kept"), tags=("release=2",))
    host.value(lambda: b"bad", name=key("bad"))
    bad = bucket.root / "entries" / key("bad").digest.hex()
    bad.write_bytes(bad.read_bytes()[:-1])
    host.cache.invalidate("release=1")
    assert numbers(bucket.collect().removed) == {}, "they are young"
    bucket.let_pass(2 * DAY)
    found = bucket.collect()
    # The one with a lifetime is not over by its own clock, which did not pass.
    assert numbers(found.removed) == {"entries": 2}
    assert numbers(found.marked).keys() == {"blobs", "recipes", "chunks"}
    bucket.let_pass(2 * DAY)
    bucket.collect()
    assert bucket.names("blobs/") | bucket.names("chunks/") | bucket.names("recipes/") == set()
    other = Host(tmp_path / "b", bucket.url)
    assert other.value(never, name=key("kept"), tags=("release=2",)) == b"kept"
    other.close()


def test_an_expired_entry_goes(bucket: Bucket) -> None:
    store = bucket.open()
    for n, expires in enumerate((time.time() - 3600, time.time() + 3600, None)):
        facts = Descriptor(codec="bytes/1", created=1.0, expires=expires)
        store.write(key(n).digest, seal(key(n).canonical, facts, b"x"))
    bucket.let_pass(2 * DAY)
    assert numbers(bucket.collect().removed) == {"entries": 1}
    assert store.read(key(0).digest) is None
    store.close()


def test_an_entry_made_after_an_invalidation_stays(bucket: Bucket, host: Host) -> None:
    for n in range(3):
        host.value(lambda: b"old", name=key(n), tags=("t",))
    host.cache.invalidate("t")
    for n in range(2):
        host.value(lambda: b"new", name=key(n), tags=("t",))
    bucket.let_pass(2 * DAY)
    assert numbers(bucket.collect().removed) == {"entries": 1}
    assert bucket.open().read(key(0).digest) is not None


@pytest.mark.parametrize("how", ["version", "codec"])
def test_nothing_goes_where_a_later_release_writes(
    bucket: Bucket, host: Host, tmp_path: Path, how: str
) -> None:
    an_old_file(bucket, tmp_path / "old", b"what it may name")
    facts = Descriptor(codec="files/2" if how == "codec" else "bytes/1", created=1.0)
    raw = bytearray(seal(key().canonical, facts, b""))
    if how == "version":
        raw[24] += 1
    store = bucket.open()
    store.write(key().digest, bytes(raw))
    store.close()
    before = bucket.names() - bucket.names("collection/")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="can't be told"):
            bucket.collect()
        bucket.let_pass(2 * DAY)
    assert bucket.names() - bucket.names("collection/") == before


def test_a_reader_that_finds_a_chunk_gone_misses(
    bucket: Bucket, host: Host, tmp_path: Path
) -> None:
    host.plan(WORD)
    next((bucket.root / "chunks").iterdir()).unlink()
    other, third = (Host(tmp_path / name, bucket.url) for name in "bc")
    assert other.plan(WORD) == (WORD, True)
    assert third.plan(None) == (WORD, False), "and it is healed"
    other.close()
    third.close()


@pytest.mark.parametrize("skew", [-5 * DAY, 5 * DAY])
def test_the_clock_of_who_collects_does_not_matter(
    bucket: Bucket, tmp_path: Path, skew: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_old_file(bucket, tmp_path / "old", b"old")
    path, record = made(tmp_path / "young", b"young")
    store = bucket.open()
    store.send(path, record)
    real = time.time()
    monkeypatch.setattr(time, "time", lambda: real + skew)
    assert numbers(bucket.collect().marked) == {"blobs": 1}
    bucket.let_pass(DAY / 2)
    assert numbers(bucket.collect().removed) == {}
    store.close()


COLLECT = """
import sys
from trivet.stores.shared import ObjectStore
from trivet.stores.shared.collector import collect
from trivet.stores.shared.requests import Requests
real = Requests.remove
def slowly(self, name):
    gone = real(self, name)
    print(name, flush=True)
    sys.stdin.readline()
    return gone
Requests.remove = slowly
collect(ObjectStore(sys.argv[1]))
"""


def test_who_is_killed_while_it_collects_has_lost_nothing(
    bucket: Bucket, host: Host, tmp_path: Path
) -> None:
    host.plan(WORD)
    for n in range(6):
        an_old_file(bucket, tmp_path / f"{n}", b"unused %d" % n)
    bucket.collect()
    bucket.let_pass(2 * DAY)
    process = start(COLLECT, bucket.url)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("blobs/")
    process.kill()
    process.communicate()
    assert 1 <= len(bucket.names("blobs/")) < 7
    other = Host(tmp_path / "b", bucket.url)
    assert other.plan(None) == (WORD, False)
    other.close()
    bucket.collect()
    assert len(bucket.names("blobs/")) == 1, "the small file of the plan"


def test_it_collects_in_s3(s3: str, s3_server: S3, tmp_path: Path) -> None:
    a = Host(tmp_path / "a", s3)
    a.plan(WORD, tags=("t",))
    assert a.objects is not None
    path, record = made(tmp_path / "unused", os.urandom(9 << 20))
    a.objects.send(path, record)
    assert numbers(collect(a.objects).marked) == {}
    first = collect(a.objects, age=0)
    assert numbers(first.marked).keys() == {"recipes", "chunks"}
    assert numbers(first.removed) == {}
    second = collect(a.objects, age=0)
    assert second.removed == first.marked
    b = Host(tmp_path / "b", s3)
    assert b.plan(None, tags=("t",)) == (WORD, False)
    a.close()
    b.close()


def test_the_command_says_what_it_did(bucket: Bucket, host: Host, tmp_path: Path) -> None:
    host.plan(WORD)
    an_old_file(bucket, tmp_path / "old", b"old")
    gc = (tmp_path / "nothing", "gc", "--shared", bucket.url)
    before = {each: each.stat().st_mtime_ns for each in bucket.root.rglob("*")}
    dry = trivet(*gc, "--dry-run", "--json").json()
    assert (dry["dry_run"], dry["marked"]["blobs"]["number"]) == (True, 1)
    assert before == {each: each.stat().st_mtime_ns for each in bucket.root.rglob("*")}
    done = trivet(*gc)
    assert done.code == 0, done.err
    assert "0 B freed; 3 B marked as unused" in done.out
    assert "a day from now" in done.out
    bucket.let_pass(2 * DAY)
    found = trivet(*gc, "--json").json()
    assert found["removed"]["blobs"] == {"number": 1, "size": 3}
    assert found["kept"]["entries"]["number"] == 1
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--shared", "ftp://x"), "not the URL of a shared tier"),
        (("--shared", "valkey://127.0.0.1:1/0"), "removes by itself"),
        (("--dry-run",), "is for --shared"),
    ],
)
def test_what_can_not_be_collected_is_said(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    done = trivet(tmp_path, "gc", *options)
    assert done.code == 2
    assert said in " ".join(done.err.split())
