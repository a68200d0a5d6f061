"""A folder that is wiped, replaced or left unclean while, or before, it is used."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest
from tests.support.store_entries import artifact_is_whole, entry, publish

from trivet.events import Event, EventKind
from trivet.stores.host import HostStore, layout
from trivet.testing.crash import run_forked

MIB = 1 << 20


def test_a_wiped_folder_is_a_miss_and_is_made_again(tmp_path: Path) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    small, large = entry("s"), entry("l", MIB)
    store.write(*small)
    store.write(*large)
    plan, _ = publish(store, "p", {"f": 10})
    shutil.rmtree(root)
    assert store.read(large[0]) is None
    assert store.artifact(plan) is None
    assert store.read(entry("never")[0]) is None
    store.write(*large)
    assert store.read(large[0]) == large[1]
    assert store.read(small[0]) is None, "what was wiped is gone"
    assert store.stats().entries == 1
    publish(store, "p", {"f": 10})
    store.close()
    again = HostStore.open(root)
    assert again.stats().entries == 2
    again.close()


def test_a_folder_that_another_process_made_again_is_noticed_at_a_miss(tmp_path: Path) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    store.write(*entry("before"))
    generation = store.generation()
    shutil.rmtree(root)

    def work() -> None:
        other = HostStore.open(root)
        other.write(*entry("after"))
        other.close()

    assert run_forked(work) == 0
    assert store.read(entry("after")[0]) == entry("after")[1]
    assert store.read(entry("before")[0]) is None
    assert store.generation() != generation
    store.close()


def test_a_store_opened_anew_shares_the_folder_with_one_that_has_not_noticed(
    tmp_path: Path,
) -> None:
    root = tmp_path / "c"
    first = HostStore.open(root)
    first.write(*entry("a"))
    shutil.rmtree(root)
    second = HostStore.open(root)
    second.write(*entry("b"))
    assert first.read(entry("b")[0]) == entry("b")[1]
    first.close()
    second.close()


def test_a_rebuild_by_another_process_is_noticed_at_the_next_read(tmp_path: Path) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    small, large = entry("s"), entry("l", MIB)
    store.write(*small)
    store.write(*large)

    def work() -> None:
        HostStore.open(root).rebuild()

    assert run_forked(work) == 0
    assert store.read(small[0]) is None, "the old index is out of use"
    assert store.read(large[0]) == large[1]
    store.write(*small)
    assert store.read(small[0]) == small[1]
    store.close()


@pytest.mark.parametrize("clean", [True, False])
def test_an_unclean_end_under_another_boot_costs_the_index(tmp_path: Path, clean: bool) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    small, large = entry("s"), entry("l", MIB)
    store.write(*small)
    store.write(*large)
    plan, _ = publish(store, "p", {"f": 10})
    store.raise_epochs(["t"])
    store.close()
    where = layout.Layout(root)
    facts = layout.read_format(where)
    assert facts is not None
    assert facts.clean
    layout.write_format(where, msgspec.structs.replace(facts, boot="before", clean=clean))
    events: list[Event] = []
    store = HostStore.open(root, sink=events.append)
    assert (store.read(small[0]) is not None) is clean
    assert store.read(large[0]) == large[1]
    artifact = store.artifact(plan)
    assert artifact is not None
    assert artifact_is_whole(*artifact)
    assert store.epochs(["t"]) == {"t": 1}
    assert [each.kind for each in events] == ([] if clean else [EventKind.REBUILT])
    store.close()


def test_clean_means_that_nobody_is_left_and_nothing_was_written_since(tmp_path: Path) -> None:
    root = tmp_path / "c"
    where = layout.Layout(root)

    def is_clean() -> bool:
        facts = layout.read_format(where)
        return facts is not None and facts.clean

    store = HostStore.open(root)
    store.write(*entry("a"))
    assert not is_clean()

    def work() -> None:
        other = HostStore.open(root)
        other.write(*entry("b"))
        other.close()
        assert not is_clean(), "the parent still uses it"

    assert run_forked(work) == 0
    store.close()
    assert is_clean()
    store = HostStore.open(root)
    store.read(entry("a")[0])
    assert is_clean(), "reading changes nothing"
    store.write(*entry("c"))
    assert not is_clean()
    store.close()


def test_a_lost_index_is_made_from_the_files(tmp_path: Path) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    large = entry("l", MIB)
    store.write(*large)
    store.close()
    shutil.rmtree(root / "index")
    events: list[Event] = []
    store = HostStore.open(root, sink=events.append)
    assert "missing" in events[0].detail
    assert store.stats().entries == 1
    store.close()


def test_a_process_that_died_inside_an_operation_has_its_index_checked(tmp_path: Path) -> None:
    root = tmp_path / "c"

    def die_inside() -> None:
        store = HostStore.open(root)
        store.write(*entry("a"))
        with store.folder.env.write():
            os._exit(0)

    assert run_forked(die_inside) == 0
    (slot,) = (root / "running").iterdir()
    assert any(slot.read_bytes())
    events: list[Event] = []
    store = HostStore.open(root, sink=events.append)
    assert store.read(entry("a")[0]) == entry("a")[1]
    assert events == [], "it was sound"
    assert len(list((root / "running").iterdir())) == 1
    store.close()


def test_a_process_that_died_while_checking_costs_the_index(tmp_path: Path) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    store.write(*entry("a"))
    store.close()
    slot = bytearray(4096)
    slot[4095] = 2
    (root / "running/00000000").write_bytes(slot)
    events: list[Event] = []
    store = HostStore.open(root, sink=events.append)
    assert [each.kind for each in events] == [EventKind.REBUILT]
    assert store.read(entry("a")[0]) is None
    store.close()


def test_opening_for_reading_writes_nothing_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    store.write(*entry("a"))
    store.close()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    store = HostStore.open(root)
    assert store.read(entry("a")[0]) is not None
    store.close()
    assert synced == [], "a warm start waits for no disk"
