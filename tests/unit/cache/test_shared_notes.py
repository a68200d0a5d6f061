"""What a host remembers about the shared tier."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trivet.cache.notes import Notes


@pytest.fixture(params=["folder", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "folder" else None


def test_a_pair_stays_until_the_shared_epoch_is_another_one(folder: Path | None) -> None:
    notes = Notes(folder, "s3://x")
    assert notes.remember({"t": 7}, {"t": 1}) == {"t": (7, 1)}
    assert notes.remember({"t": 7}, {"t": 2}) == {"t": (7, 1)}
    assert notes.remember({"t": 8, "u": 5}, {"t": 3, "u": 0}) == {"t": (8, 3), "u": (5, 0)}


def test_epochs_raised_together_go_together(folder: Path | None) -> None:
    notes = Notes(folder, "s3://x")
    notes.remember({"t": 8}, {"t": 1})
    notes.agree({"t": 8}, {"t": 2})
    assert notes.pairs() == {"t": (8, 2)}


def test_of_a_tag_that_was_never_seen_the_first_epoch_is_distrusted(folder: Path | None) -> None:
    notes = Notes(folder, "s3://x")
    notes.remember({"seen": 7}, {"seen": 1})
    notes.distrust(["seen", "t"], {"seen": 1, "t": 4})
    assert notes.remember({"t": 9}, {"t": 5})["t"] == (9, 4)
    assert notes.remember({"t": 10}, {"t": 5})["t"] == (10, 5)
    assert notes.pairs()["seen"] == (7, 1)


def test_all_processes_of_a_host_know_it(tmp_path: Path) -> None:
    one, other = Notes(tmp_path, "s3://x"), Notes(tmp_path, "s3://x")
    one.remember({"t": 7}, {"t": 1})
    assert other.pairs() == {"t": (7, 1)}
    other.remember({"u": 8}, {"u": 2})
    assert one.pairs() == {"t": (7, 1), "u": (8, 2)}
    one.refuse(b"d" * 32, b"content")
    assert other.is_refused(b"d" * 32, b"content")
    assert not other.is_refused(b"e" * 32, b"content")
    assert not other.is_refused(b"d" * 32, b"another content")


def test_another_shared_tier_has_other_notes(tmp_path: Path) -> None:
    Notes(tmp_path, "s3://x").remember({"t": 7}, {"t": 1})
    assert Notes(tmp_path, "s3://y").pairs() == {}


def test_nothing_is_lost_between_writers(tmp_path: Path) -> None:
    def write(i: int) -> None:
        Notes(tmp_path, "s3://x").remember({f"t{i}": i}, {f"t{i}": 0})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(64)))
    assert Notes(tmp_path, "s3://x").pairs() == {f"t{i}": (i, 0) for i in range(64)}


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    Notes(tmp_path, "s3://x").remember({"t": 7}, {"t": 1})
    (file,) = tmp_path.glob("*/epochs")
    file.write_bytes(b"\xc1 not this")
    notes = Notes(tmp_path, "s3://x")
    assert notes.pairs() == {}
    assert notes.remember({"t": 8}, {"t": 2}) == {"t": (8, 2)}
    assert Notes(tmp_path, "s3://x").pairs() == {"t": (8, 2)}


def test_a_folder_that_can_not_be_written_is_remembered_in_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    notes = Notes(tmp_path / "file", "s3://x")
    notes.remember({"t": 7}, {"t": 1})
    notes.refuse(b"d" * 32, b"content")
    assert notes.pairs() == {"t": (7, 1)}
    assert notes.is_refused(b"d" * 32, b"content")
