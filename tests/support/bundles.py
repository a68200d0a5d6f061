"""Caches with artifacts in them, and bundles of these, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.store_entries import payload

from trivet.cache import Artifact, ArtifactLease, Cache, Hit, Miss, StoredEntry
from trivet.keys import Key
from trivet.plans import bundles

SHARED = payload("weights", 400_000)


def plan_key(n: int, **fields: object) -> Key:
    """A key of the space of plans."""
    return Key("plan/1", {"n": n, "backend": {"name": "fake"}, **fields})  # type: ignore[dict-item]


def plan_files(n: int) -> dict[str, bytes]:
    """Files that share most of their bytes with those of any other ``n``, not aligned."""
    head = payload(f"head {n}", 1000 + 777 * n)
    return {"plan/model.bin": head + SHARED, "plan/facts.json": b"{}", "plan/empty": b""}


def keep(
    cache: Cache, key: Key, files: Mapping[str, bytes], *, tags: tuple[str, ...] = ()
) -> Artifact:
    """Commit an artifact."""
    lease = cache.acquire_files(key, tags=tags)
    assert isinstance(lease, ArtifactLease), lease
    with lease:
        for name, content in files.items():
            path = lease.staging / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return lease.commit(cost=1.5)


def fill(cache: Cache, numbers: range, *, release: str = "r1") -> None:
    """Keep `plan_files` of ``numbers``."""
    for n in numbers:
        keep(cache, plan_key(n), plan_files(n), tags=(f"release={release}", f"graph={n}"))


def make_bundle(
    folder: Path, numbers: range, *, release: str = "r1", sign: Path | None = None
) -> Path:
    """A bundle of `fill`, from a new cache in ``folder``."""
    with Cache.open(folder / f"host {release}", strict=True) as cache:
        fill(cache, numbers, release=release)
        target = folder / f"{release}.trivet"
        bundles.create(cache, target, release=release, sign=sign)
    return target


def read_plan(cache: Cache, n: int) -> dict[str, bytes] | Miss:
    """The verified files under `plan_key`."""
    found = cache.get_files(plan_key(n))
    if not isinstance(found, Hit):
        assert isinstance(found, Miss)
        return found
    folder = found.value.verify()
    return {each.name: (folder / each.name).read_bytes() for each in found.value.manifest.files}


def listed(cache: Cache) -> dict[int, StoredEntry]:
    """The entries of plans, by number."""
    return {each.key["n"]: each for each in cache.entries("plan/1")}


def files_below(folder: Path) -> set[str]:
    """All files, as paths from ``folder``."""
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}
