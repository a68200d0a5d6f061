"""Entries that earlier releases wrote are read by this one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trivet.codecs import Arrays
from trivet.entries import Descriptor, Failure, FileRecord, Manifest, peek, seal, unseal
from trivet.entries.manifest import ARTIFACT_CODEC
from trivet.keys import Fingerprint, Key

FOLDER = Path(__file__).parent
KEY = Key("value/1", {"model": "encoder", "input": b"hello", "options": {"pool": "mean"}})
ARRAYS = {
    "x": np.arange(6, dtype="<f4").reshape(2, 3) / 4,
    "empty": np.zeros((0, 3), "<i8"),
    "scalar": np.array(True),
    "half": np.array([1.5, -0.0], "<f2"),
    "complex": np.array([1 + 2j], "<c16"),
}
MANIFEST = Manifest(
    (
        FileRecord("model.onnx", 3, Fingerprint.of(b"abc")),
        FileRecord("weights/a.bin", 0, Fingerprint.of(b"")),
    )
)
ENTRIES = {
    "plain": (Descriptor(codec="bytes/1", created=1_790_000_000.0), b"payload"),
    "full": (
        Descriptor(
            codec="arrays/1",
            created=1_790_000_000.25,
            expires=1_790_003_600.0,
            cost=1.5,
            size=123_456,
            tags={"release:2026.11": 3, "backend:onnxruntime": 0},
            group="2026.11/resnet50",
            detail={"isa": ["avx2", "fma"], "threads": 2, "nested": {"none": None}},
        ),
        Arrays().encode(ARRAYS),
    ),
    "failure": (
        Descriptor(
            codec="none/1",
            created=1_790_000_000.0,
            failure=Failure("NotImplemented", "no kernel for Foo(21)"),
        ),
        b"",
    ),
    "artifact": (
        Descriptor(codec=ARTIFACT_CODEC, created=1_790_000_000.0, size=MANIFEST.size),
        MANIFEST.encode(),
    ),
}


def stored(name: str) -> bytes:
    return (FOLDER / f"entry-v1-{name}.bin").read_bytes()


@pytest.mark.parametrize("name", ENTRIES)
def test_an_old_entry_is_read(name: str) -> None:
    descriptor, payload = ENTRIES[name]
    opened = unseal(stored(name), cryptographic=True)
    assert Key.from_canonical(opened.key) == KEY
    assert opened.descriptor == descriptor
    assert opened.payload == payload
    assert peek(stored(name)) == (KEY.canonical, descriptor)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_written_as_ever(name: str) -> None:
    descriptor, payload = ENTRIES[name]
    assert seal(KEY.canonical, descriptor, payload) == stored(name)


def test_old_arrays_are_decoded() -> None:
    old = Arrays().decode(memoryview((FOLDER / "arrays-1.bin").read_bytes()))
    assert list(old) == list(ARRAYS)
    for name, each in ARRAYS.items():
        assert old[name].dtype == each.dtype
        assert old[name].shape == each.shape
        assert old[name].tobytes() == each.tobytes()


def test_an_old_manifest_is_decoded() -> None:
    assert Manifest.decode(unseal(stored("artifact")).payload) == MANIFEST


def test_every_golden_entry_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("entry-*.bin")} == {f"entry-v1-{n}" for n in ENTRIES}
