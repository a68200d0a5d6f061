"""Blobs: sent once, verified while they are fetched, healed where they are damaged."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engine import finish, start

from trivet.entries import FileRecord
from trivet.errors import CorruptEntry, StoreReadOnly, StoreUnavailable
from trivet.stores.files import record_files
from trivet.stores.shared import ObjectStore

SMALL, LARGE = 1000, (11 << 20) + 7  # the second in three parts


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return f"file://{tmp_path}/shared"
    found: str = request.getfixturevalue("s3")
    return found


@pytest.fixture
def store(url: str) -> Iterator[ObjectStore]:
    store = ObjectStore(url, timeout=30)
    yield store
    store.close()


def made(folder: Path, content: bytes) -> tuple[Path, FileRecord]:
    folder.mkdir(exist_ok=True)
    (folder / "file").write_bytes(content)
    return folder / "file", next(record_files(folder))


def put_raw(store: ObjectStore, record: FileRecord, content: bytes) -> None:
    """What a broken server or a bad hand does."""
    store.requests.put(f"blobs/{record.blake3.hex()}", content)


@pytest.mark.parametrize("size", [0, SMALL, LARGE])
def test_a_file_comes_back_and_is_sent_once(store: ObjectStore, tmp_path: Path, size: int) -> None:
    path, record = made(tmp_path / "a", os.urandom(size))
    assert store.send(path, record) is True
    assert store.send(path, record) is False
    store.fetch(record, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("damage", ["flipped", "cut", "longer", "missing"])
def test_a_damaged_file_is_refused_and_sent_again(
    store: ObjectStore, tmp_path: Path, size: int, damage: str
) -> None:
    content = os.urandom(size)
    path, record = made(tmp_path / "a", content)
    store.send(path, record)
    if damage == "missing":
        store.discard(record)
    elif damage == "flipped":
        put_raw(store, record, content[:-1] + bytes([content[-1] ^ 1]))
    else:
        put_raw(store, record, content[:-1] if damage == "cut" else content + b"x")
    with pytest.raises(CorruptEntry):
        store.fetch(record, tmp_path / "back")
    if damage == "flipped":  # of the right size: only who read it can tell
        store.discard(record)
    assert store.send(path, record) is True
    store.fetch(record, tmp_path / "good")
    assert (tmp_path / "good").read_bytes() == content


def test_an_entry_is_offered_once(store: ObjectStore) -> None:
    assert store.offer(b"\1" * 32, b"first") is True
    assert store.offer(b"\1" * 32, b"second") is False
    assert store.read(b"\1" * 32) == b"first"


def test_an_entry_is_replaced_only_by_who_has_read_it(store: ObjectStore) -> None:
    digest = b"\1" * 32
    assert store.read_version(digest) is None
    assert store.replace(digest, b"first", None) is True
    assert store.replace(digest, b"late", None) is False
    found = store.read_version(digest)
    assert found is not None
    raw, version = found
    assert raw == b"first"
    assert store.replace(digest, b"second", version) is True
    assert store.replace(digest, b"late", version) is False
    assert store.read(digest) == b"second"
    store.delete(digest)
    assert store.replace(digest, b"late", version) is False


def test_a_bucket_that_does_not_exist_is_unavailable(s3: str) -> None:
    with pytest.raises(StoreUnavailable):
        ObjectStore("s3://no-such-bucket/x").write(bytes(32), b"x")


def test_a_refused_write_says_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forbid(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forbid) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "reader")
        try:
            with pytest.raises(StoreReadOnly):
                ObjectStore("s3://bucket").write(bytes(32), b"x")
        finally:
            server.shutdown()
            thread.join()


def test_a_forked_child_of_one_that_used_it_is_told_and_does_not_hang(tmp_path: Path) -> None:
    code = """
import os, sys
from trivet.errors import StoreUnavailable
from trivet.stores.shared import ObjectStore
before, used = (ObjectStore(f"file://{sys.argv[1]}/{n}") for n in "ab")
if os.fork() == 0:
    before.write(bytes(32), b"x")       # nobody used it before the fork
    os._exit(0)
assert os.wait()[1] == 0
used.write(bytes(32), b"x")
if os.fork() == 0:
    for store in (used, before, ObjectStore(f"file://{sys.argv[1]}/c")):
        try:
            store.read(bytes(32))
        except StoreUnavailable as error:
            assert "forked" in str(error)
        else:
            os._exit(1)
    os._exit(0)
assert os.wait()[1] == 0
"""
    finish(start(code, tmp_path))
