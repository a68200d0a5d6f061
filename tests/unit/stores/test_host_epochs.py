"""Epochs: durable, never rolled back, and safe when their log is damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trivet.stores.host import HostStore
from trivet.testing.crash import run_forked


def test_epochs_begin_at_zero_and_rise(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c")
    assert store.epochs(["a", "b"]) == {"a": 0, "b": 0}
    assert store.raise_epochs(["a"]) == {"a": 1}
    assert store.raise_epochs(["a", "b"]) == {"a": 2, "b": 1}
    assert store.epochs(["a", "b", "c"]) == {"a": 2, "b": 1, "c": 0}
    store.close()


def test_another_process_sees_a_raise_at_its_next_look(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c")
    generation = store.generation()
    store.epochs(["a"])

    def work() -> None:
        other = HostStore.open(tmp_path / "c")
        for _ in range(3):
            other.raise_epochs(["a", "b"])

    assert run_forked(work) == 0
    assert store.generation() != generation
    assert store.epochs(["a", "b"]) == {"a": 3, "b": 3}
    store.close()


def test_epochs_survive_a_rebuild_and_a_lost_index(tmp_path: Path) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    store.raise_epochs(["a"])
    store.rebuild()
    assert store.epochs(["a"]) == {"a": 1}
    store.close()
    os.unlink(root / "index/data.mdb")
    store = HostStore.open(root)
    assert store.epochs(["a"]) == {"a": 1}
    store.close()


def test_a_long_log_is_compacted(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "c")
    store.raise_epochs(["only"])
    for i in range(40):
        store.raise_epochs([f"tag {i} {j}" for j in range(50)])
    for _ in range(20):
        store.raise_epochs(["x" * 5000])
    size = (tmp_path / "c/epochs").stat().st_size
    assert size < 300_000
    for _ in range(60):
        store.raise_epochs(["x" * 5000])
    assert (tmp_path / "c/epochs").stat().st_size < size + 70_000
    assert store.epochs(["only", "x" * 5000, "tag 3 7"]) == {
        "only": 1,
        "x" * 5000: 80,
        "tag 3 7": 1,
    }
    store.close()


@pytest.mark.parametrize("keep", [0, 10, 24, 30, 60])
def test_a_cut_log_invalidates_rather_than_forgets(tmp_path: Path, keep: int) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    store.raise_epochs(["a"])
    store.raise_epochs(["b"])
    store.raise_epochs(["a"])
    store.close()
    os.truncate(root / "epochs", keep)
    store = HostStore.open(root)
    found = store.epochs(["a", "b", "never"])
    assert found["a"] not in (0, 1, 2)
    assert found["b"] not in (0, 1)
    assert found["never"] != 0, "an entry that depends on any tag is invalid now"
    assert store.raise_epochs(["a"])["a"] == found["a"] + 1
    store.close()


def test_a_lost_log_invalidates_rather_than_forgets(tmp_path: Path) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    store.raise_epochs(["a"])
    store.close()
    for victims in (["epochs"], ["epochs", "generation"]):
        for victim in victims:
            os.unlink(root / victim)
        store = HostStore.open(root)
        assert store.epochs(["a"])["a"] > 1
        store.close()


def test_a_torn_tail_is_ignored_and_replaced(tmp_path: Path) -> None:
    root = tmp_path / "c"
    store = HostStore.open(root)
    store.raise_epochs(["a"])
    with (root / "epochs").open("ab") as log:
        log.write(b"\x20\0\0\0half of a record whose writer died")
    assert store.epochs(["a"]) == {"a": 1}
    assert store.raise_epochs(["a"]) == {"a": 2}
    store.close()
    store = HostStore.open(root)
    assert store.epochs(["a"]) == {"a": 2}
    store.close()
