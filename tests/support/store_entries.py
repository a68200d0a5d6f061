"""Entries and artifacts for tests of stores."""

from __future__ import annotations

import random
from pathlib import Path

from blake3 import blake3

from trivet.entries import Descriptor, FileRecord, Manifest, seal, unseal
from trivet.keys import Key
from trivet.stores.host import HostStore


def payload(name: str, size: int) -> bytes:
    """Bytes that belong to the name and nothing else."""
    return random.Random(name).randbytes(size)


def entry(
    name: str,
    size: int = 100,
    *,
    version: str = "",
    cost: float = 1.0,
    group: str = "",
    tags: dict[str, int] | None = None,
    expires: float | None = None,
) -> tuple[bytes, bytes]:
    """Digest and sealed bytes; ``version`` varies the payload of the same key."""
    key = Key("test/1", {"name": name})
    facts = Descriptor(
        codec="bytes/1",
        created=1.0,
        cost=cost,
        size=size,
        group=group,
        tags=tags or {},
        expires=expires,
    )
    return key.digest, seal(key.canonical, facts, payload(name + version, size))


def publish(
    store: HostStore, name: str, files: dict[str, int], *, version: str = "", group: str = ""
) -> tuple[bytes, Path]:
    """Publish an artifact of these files (name to size); its digest and folder."""
    staging = store.staging()
    records = []
    for file, size in sorted(files.items()):
        data = payload(f"{name}/{file}{version}", size)
        (staging / file).parent.mkdir(parents=True, exist_ok=True)
        (staging / file).write_bytes(data)
        records.append(FileRecord(file, size, blake3(data).digest()))
    key = Key("test/1", {"name": name})
    facts = Descriptor(
        codec="files/1", created=1.0, cost=1.0, size=sum(files.values()), group=group
    )
    sealed = seal(key.canonical, facts, Manifest(tuple(records)).encode())
    return key.digest, store.publish(key.digest, sealed, staging)


def artifact_is_whole(sealed: bytes, folder: Path) -> bool:
    """Whether all files of the manifest are there with the right content, and no other."""
    manifest = Manifest.decode(unseal(sealed).payload)
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    return found == {each.name for each in manifest.files} and all(
        blake3((folder / each.name).read_bytes()).digest() == each.blake3 for each in manifest.files
    )


def files_below(root: Path) -> set[str]:
    """Names of the value and artifact files of a store, and of what lies in staging and trash."""
    tops = ("objects", "artifacts", "staging", "trash")
    return {
        path.relative_to(root).as_posix()
        for top in tops
        for path in (root / top).glob("*/*" if top in ("objects", "artifacts") else "*")
    }
