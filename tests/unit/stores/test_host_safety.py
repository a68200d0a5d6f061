"""Folders that are refused, and folders that can only be read."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.disks import reachable
from tests.support.store_entries import artifact_is_whole, entry, publish

from trivet import Cache
from trivet.errors import StoreReadOnly, StoreUnavailable, UnsafeFolder
from trivet.stores.host import HostStore, network_filesystem, safety
from trivet.testing.crash import run_forked

NOBODY = 65534
MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:26 / /home rw - nfs4 server:/home rw
31 30 0:27 / /home/local\\040disk rw - xfs /dev/vdb rw
32 22 0:28 / /mnt/s3 rw - fuse.s3fs s3fs rw
33 22 0:29 / /mnt/over rw shared:5 - fuse.fuse-overlayfs overlay rw
34 22 0:30 / /homes rw - tmpfs tmpfs rw
35 22 0:31 / /mnt/two rw - nfs a rw
36 22 0:32 / /mnt/two rw - ext4 /dev/vdc rw
"""


def as_nobody(work: Callable[[], object]) -> int:
    """Run ``work`` in a child that is an ordinary user; its exit code."""

    def drop() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        work()

    return run_forked(drop)


@pytest.fixture
def public() -> Iterator[Path]:
    with reachable() as path:
        yield path


@pytest.mark.parametrize(("mode", "who"), [(0o777, "others"), (0o770, "group"), (0o1777, "sticky")])
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path, mode: int, who: str) -> None:
    root = tmp_path / "c"
    HostStore.open(root).close()
    root.chmod(mode)
    with pytest.raises(UnsafeFolder) as caught:
        HostStore.open(root)
    assert caught.value.hint == f"chmod go-w {root}", who
    root.chmod(0o700)
    HostStore.open(root).close()


def test_an_open_folder_inside_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "c"
    HostStore.open(root).close()
    (root / "artifacts").chmod(0o777)
    with pytest.raises(UnsafeFolder, match="artifacts"):
        HostStore.open(root)


def test_a_parent_in_which_anybody_can_rename_is_refused(tmp_path: Path) -> None:
    parent = tmp_path / "open"
    parent.mkdir()
    parent.chmod(0o777)
    with pytest.raises(UnsafeFolder, match="everybody"):
        HostStore.open(parent / "c")
    assert not (parent / "c").exists(), "nothing is written before the check"
    parent.chmod(0o1777)
    HostStore.open(parent / "c").close()


@pytest.mark.needs("root")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "c"
    HostStore.open(root).close()
    os.chown(root, NOBODY, NOBODY)
    with pytest.raises(UnsafeFolder) as caught:
        HostStore.open(root)
    assert "belongs to user 65534" in caught.value.message
    assert "chown" in str(caught.value.hint)


def test_the_target_of_a_link_is_what_is_checked(tmp_path: Path) -> None:
    target, link = tmp_path / "c", tmp_path / "link"
    target.mkdir(mode=0o700)
    link.symlink_to(target)
    store = HostStore.open(link)
    assert store.root == target
    store.close()
    target.chmod(0o777)
    with pytest.raises(UnsafeFolder):
        HostStore.open(link)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/.cache", "nfs4"),
        ("/home/local disk/c", None),
        ("/homes/me", None),
        ("/mnt/s3", "fuse.s3fs"),
        ("/mnt/over/c", None),
        ("/mnt/two", None),
        ("/var/cache", None),
    ],
)
def test_network_file_systems_are_recognised(path: str, kind: str | None) -> None:
    assert network_filesystem(Path(path), MOUNTS) == kind


def test_this_folder_is_local(tmp_path: Path) -> None:
    assert network_filesystem(tmp_path) is None


def test_a_network_file_system_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safety, "network_filesystem", lambda path: "nfs4")
    with pytest.raises(StoreUnavailable, match="nfs4") as caught:
        HostStore.open(tmp_path / "c")
    assert "local disk" in str(caught.value.hint)


@pytest.mark.needs("root")
def test_another_user_reads_a_populated_folder_of_root(public: Path) -> None:
    root = public / "c"
    store = HostStore.open(root)
    small, large = entry("s"), entry("l", 100_000)
    store.write(*small)
    store.write(*large)
    plan, _ = publish(store, "p", {"f": 10})
    store.raise_epochs(["t"])
    generation = store.generation()
    store.close()
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)

    def work() -> None:
        mine = HostStore.open(root)
        assert mine.read_only
        assert mine.read(small[0]) == small[1]
        assert mine.read(large[0]) == large[1]
        artifact = mine.artifact(plan)
        assert artifact is not None
        assert artifact_is_whole(*artifact)
        assert mine.epochs(["t"]) == {"t": 1}
        assert mine.generation() == generation
        assert len(list(mine.scan())) == 3
        assert all(each.problem is None for each in mine.verify())
        mine.touch(small[0])
        for change in (
            lambda: mine.write(*small),
            lambda: mine.delete(small[0]),
            lambda: mine.raise_epochs(["t"]),
            mine.staging,
            mine.clear,
            mine.gc,
            lambda: mine.quarantine(small[0], "x"),
        ):
            with pytest.raises(StoreReadOnly):
                change()
        assert mine.read(bytes(32)) is None
        mine.close()

    before = sorted(str(path) for path in root.rglob("*"))
    assert as_nobody(work) == 0
    assert sorted(str(path) for path in root.rglob("*")) == before


@pytest.mark.needs("root")
def test_an_empty_folder_that_cannot_be_written_is_an_error(public: Path) -> None:
    root = public / "empty"
    root.mkdir(mode=0o755)

    def work() -> None:
        for path in (root, root / "deeper"):
            with pytest.raises(StoreReadOnly):
                HostStore.open(path)

    assert as_nobody(work) == 0


@pytest.mark.needs("root")
def test_an_ordinary_user_uses_a_folder_of_his_own(public: Path) -> None:
    home = public / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)

    def work() -> None:
        store = HostStore.open(home / ".cache/trivet")
        store.write(*entry("a"))
        store.close()
        store = HostStore.open(home / ".cache/trivet")
        assert store.read(entry("a")[0]) == entry("a")[1]
        store.close()

    assert as_nobody(work) == 0


def test_a_folder_that_could_not_be_opened_leaves_nothing_open(tmp_path: Path) -> None:
    HostStore.open(tmp_path / "c").close()
    (tmp_path / "c" / "generation").unlink()
    (tmp_path / "c" / "generation").mkdir()
    gc.collect()
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            HostStore.open(tmp_path / "c")
        assert not isinstance(Cache.open(tmp_path / "c").store, HostStore)
    gc.collect()
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(tmp_path / "c" / "running") == []
