"""Manifests: names that a hostile writer chose can't leave the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trivet.entries import FileRecord, Manifest
from trivet.errors import CorruptEntry
from trivet.keys import Fingerprint

DIGEST = bytes(32)

ATTACKS = [
    "",
    ".",
    "..",
    "/",
    "/etc/passwd",
    "//etc/passwd",
    "../escape",
    "a/../../escape",
    "a/..",
    "a/.",
    "./a",
    "a//b",
    "a/",
    "a\\b",
    "..\\escape",
    "C:\\windows",
    "a\0b",
    "a\nb",
    "a\rb",
    "a\x1b[2Jb",
    "a\x7f",
    "\ud800",
    "x" * 256,
    "é" * 128,
    "/".join(["x" * 200] * 6),
]


@pytest.mark.parametrize("name", ATTACKS, ids=ascii)
def test_a_name_that_leaves_the_folder_or_breaks_it_is_refused(name: str) -> None:
    with pytest.raises(CorruptEntry):
        Manifest((FileRecord(name, 1, DIGEST),))
    if name.isprintable():
        with pytest.raises(CorruptEntry):
            Manifest.decode(msgspec.msgpack.encode({"files": [[name, 1, DIGEST]]}))
        with pytest.raises(CorruptEntry):
            Manifest.decode(
                msgspec.msgpack.encode({"files": [{"name": name, "size": 1, "blake3": DIGEST}]})
            )


@given(st.text(max_size=30))
def test_an_accepted_name_stays_below_the_folder(name: str) -> None:
    try:
        Manifest((FileRecord(name, 0, DIGEST),))
    except CorruptEntry:
        return
    folder = Path("/srv/cache/artifact")
    joined = folder / name
    assert joined.is_relative_to(folder)
    assert joined != folder
    assert ".." not in joined.parts
    assert joined.as_posix() == f"{folder}/{name}", "the name means exactly one file"


@pytest.mark.parametrize(
    "name",
    ["model.onnx", "a/b/c.bin", "..a", "a..", ".hidden", "...", "é", "a b", "x" * 255, "a:b"],
)
def test_ordinary_names_are_fine(name: str) -> None:
    manifest = Manifest((FileRecord(name, 1, DIGEST),))
    assert Manifest.decode(manifest.encode()) == manifest


def test_names_repeat_in_no_manifest() -> None:
    with pytest.raises(CorruptEntry, match="unique"):
        Manifest((FileRecord("a", 1, DIGEST), FileRecord("a", 2, DIGEST)))


def test_names_are_sorted() -> None:
    with pytest.raises(CorruptEntry, match="sorted"):
        Manifest((FileRecord("b", 1, DIGEST), FileRecord("a", 1, DIGEST)))


@pytest.mark.parametrize("inner", ["a/b", "a/b/c"])
def test_no_file_lies_inside_another(inner: str) -> None:
    with pytest.raises(CorruptEntry, match="inside"):
        Manifest((FileRecord("a", 1, DIGEST), FileRecord(inner, 1, DIGEST)))
    Manifest((FileRecord("a.x", 1, DIGEST), FileRecord(inner, 1, DIGEST)))


@pytest.mark.parametrize("size", [-1, 1 << 62, 1 << 64])
def test_impossible_sizes_are_refused(size: int) -> None:
    with pytest.raises(CorruptEntry):
        Manifest((FileRecord("a", size, DIGEST),))


@pytest.mark.parametrize("digest", [b"", b"x" * 31, b"x" * 64])
def test_impossible_digests_are_refused(digest: bytes) -> None:
    with pytest.raises(CorruptEntry):
        Manifest((FileRecord("a", 1, digest),))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc0",
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode({"files": {}}),
        msgspec.msgpack.encode({"files": [{"name": "a", "size": "1", "blake3": DIGEST}]}),
        msgspec.msgpack.encode({"files": [{"name": b"a", "size": 1, "blake3": DIGEST}]}),
        msgspec.msgpack.encode({"files": []}) + b"\xc0",
        b"\x81\xa5files\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
    ],
    ids=range(9),
)
def test_other_bytes_are_corrupt(raw: bytes) -> None:
    with pytest.raises(CorruptEntry):
        Manifest.decode(raw)


@given(st.binary(max_size=100))
def test_garbage_is_corrupt(garbage: bytes) -> None:
    for raw in (garbage, b"\x81\xa5files\x91" + garbage):
        try:
            assert isinstance(Manifest.decode(raw), Manifest)
        except CorruptEntry:
            continue


def test_a_manifest_adds_up_and_takes_fingerprints() -> None:
    records: list[Any] = [FileRecord("a", 3, Fingerprint.of(b"abc")), FileRecord("b", 4, DIGEST)]
    manifest = Manifest(tuple(records))
    assert manifest.size == 7
    assert Manifest.decode(manifest.encode()) == manifest
    assert Manifest(()).size == 0
