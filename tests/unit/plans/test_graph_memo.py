"""The memo of graph identities: what it trusts, and what it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support import onnx_models
from tests.support.memos import DictMemo

from trivet.errors import ModelError
from trivet.plans.graph import GraphMemo, identify
from trivet.testing import FakeClock


class Store(DictMemo):
    """A memo that counts what it answers."""

    hits = 0

    def get(self, key: bytes) -> bytes | None:  # type: ignore[override]
        self.hits += key in self
        return super().get(key)


def _later(path: Path) -> float:
    """A time at which the files in the folder of ``path`` are no longer new."""
    return max(each.stat().st_ctime_ns for each in path.parent.iterdir()) / 1e9 + 1


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return onnx_models.external_data(tmp_path / "model", onnx_models.conv_net())


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def memo(model: Path, store: Store) -> GraphMemo:
    return GraphMemo(store, FakeClock(_later(model)))


def test_an_unchanged_model_is_answered_without_opening_it(
    model: Path, store: Store, memo: GraphMemo, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = memo.identify(model)
    assert first == identify(model)

    def refuse(*_: object) -> int:
        raise AssertionError("a file was opened")

    monkeypatch.setattr(os, "open", refuse)
    assert memo.identify(model) == first
    assert store.hits == 1


def test_a_relative_path_is_the_same_model(
    model: Path, store: Store, memo: GraphMemo, monkeypatch: pytest.MonkeyPatch
) -> None:
    memo.identify(model)
    monkeypatch.chdir(model.parent)
    assert memo.identify(Path(model.name)).sources[0].path == str(model)
    assert store.hits == 1


@pytest.mark.parametrize("which", ["model.onnx", "weights.bin"])
def test_a_preserved_modification_time_does_not_fool_it(
    which: str, model: Path, store: Store
) -> None:
    memo = GraphMemo(store, FakeClock(_later(model)))
    before = memo.identify(model)
    file = model.parent / which
    times = file.stat()
    new = onnx_models.external_data(model.parent.parent / "new", onnx_models.conv_net(seed=5))
    if which == "model.onnx":
        proto = onnx_models.conv_net()
        proto.producer_name = "other"
        new = onnx_models.external_data(model.parent.parent / "new", proto)
    onnx_models.let_time_pass(file)
    with file.open("r+b") as stream:  # in place: the same inode
        stream.write((new.parent / which).read_bytes())
        stream.truncate()
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file.stat().st_mtime_ns == times.st_mtime_ns
    assert file.stat().st_ino == times.st_ino
    after = memo.identify(model)
    assert after == identify(model)
    assert (after.weights, after.metadata) != (before.weights, before.metadata)


def test_a_file_replaced_by_one_of_equal_size_and_time_does_not_fool_it(
    model: Path, memo: GraphMemo
) -> None:
    before = memo.identify(model)
    data = model.parent / "weights.bin"
    other = onnx_models.external_data(model.parent.parent / "new", onnx_models.conv_net(seed=5))
    new, times = other.parent / "weights.bin", data.stat()
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.replace(data)
    assert data.stat().st_size == times.st_size
    assert data.stat().st_mtime_ns == times.st_mtime_ns
    assert memo.identify(model).weights != before.weights


def test_a_link_that_points_elsewhere_does_not_fool_it(tmp_path: Path, store: Store) -> None:
    one = onnx_models.save(onnx_models.mlp(seed=1), tmp_path / "one.onnx")
    two = onnx_models.save(onnx_models.mlp(seed=2), tmp_path / "two.onnx")
    link = tmp_path / "link.onnx"
    link.symlink_to(one)
    memo = GraphMemo(store, FakeClock(_later(one)))
    before = memo.identify(link)
    link.unlink()
    link.symlink_to(two)
    assert memo.identify(link).weights != before.weights


def test_a_missing_external_file_is_an_error_though_remembered(
    model: Path, memo: GraphMemo
) -> None:
    memo.identify(model)
    (model.parent / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin"):
        memo.identify(model)


@pytest.mark.parametrize(("age", "kept"), [(-10.0, 0), (0.0, 0), (0.04, 0), (0.06, 1)])
def test_a_file_that_is_too_new_is_not_remembered(
    age: float, kept: int, model: Path, store: Store
) -> None:
    newest = max(each.stat().st_ctime_ns for each in model.parent.iterdir()) / 1e9
    GraphMemo(store, FakeClock(newest + age)).identify(model)
    assert len(store) == kept


class ChangesOnce(FakeClock):
    """While somebody sleeps, a file gets other content of the same size."""

    def __init__(self, start: float, file: Path) -> None:
        super().__init__(start)
        self._file = file

    def sleep(self, seconds: float) -> None:
        if not self.slept:
            with self._file.open("r+b") as stream:
                stream.seek(-1, os.SEEK_END)
                stream.write(b"\x5a")
        super().sleep(seconds)


@pytest.mark.parametrize("which", ["model.onnx", "weights.bin"])
def test_a_change_in_the_same_tick_is_never_mistaken_for_what_was_read(
    which: str, tmp_path: Path, store: Store
) -> None:
    model = onnx_models.external_data(tmp_path / "model", onnx_models.conv_net())
    before = identify(model)
    newest = max(each.stat().st_ctime_ns for each in model.parent.iterdir()) / 1e9
    clock = ChangesOnce(newest, model.parent / "weights.bin")
    if which == "weights.bin":  # the model's own file is older than its data
        onnx_models.let_time_pass(model)
        os.utime(model.parent / "weights.bin")
        changed = (model.parent / "weights.bin").stat().st_ctime_ns / 1e9
        clock = ChangesOnce(changed, model.parent / "weights.bin")
    found = GraphMemo(store, clock).identify(model)
    assert clock.slept
    assert found.weights != before.weights
    assert found.weights == identify(model).weights


@pytest.mark.parametrize(("changed", "until"), [(1_000 * 10**9, 1_002.0), (1_001_001, 0.0)])
def test_times_in_whole_seconds_are_not_trusted_for_two(
    changed: int, until: float, store: Store
) -> None:
    clock = FakeClock(1_000.9)
    assert GraphMemo(store, clock)._let_settle([changed]) is bool(until)
    assert clock.time() >= until


def test_a_damaged_memo_is_no_answer(model: Path, store: Store, memo: GraphMemo) -> None:
    graph = memo.identify(model)
    (key,) = store
    for damaged in (b"", b"\xc1", store[key][:-1], b"\x80"):
        store[key] = damaged
        assert memo.identify(model) == graph


def test_a_memo_of_another_model_is_no_answer(tmp_path: Path, store: Store) -> None:
    one = onnx_models.save(onnx_models.mlp(seed=1), tmp_path / "one.onnx")
    two = onnx_models.save(onnx_models.mlp(seed=2), tmp_path / "two.onnx")
    memo = GraphMemo(store, FakeClock(_later(one)))
    memo.identify(one)
    memo.identify(two)
    first, second = store
    store[first], store[second] = store[second], store[first]
    assert memo.identify(one) == identify(one)


def test_a_path_that_is_not_unicode_works_without_memo(tmp_path: Path, store: Store) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    model = onnx_models.save(onnx_models.mlp(), folder / "model.onnx")
    memo = GraphMemo(store, FakeClock(_later(model)))
    assert memo.identify(model) == memo.identify(model)
    assert not store


# -- while somebody else reads the model -----------------------------------------------------------


def test_who_waited_takes_what_the_other_has_found(
    model: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def meanwhile() -> None:
        found.append(GraphMemo(store, FakeClock(_later(model))).identify(model))
        monkeypatch.setattr("trivet.plans.graph.memo.identify", None)  # who calls it, fails

    store.meanwhile = meanwhile
    assert GraphMemo(store, FakeClock(_later(model))).identify(model) == found[0]


@pytest.mark.parametrize("which", ["model.onnx", "weights.bin"])
def test_what_the_other_has_found_is_not_taken_for_files_that_changed_since(
    which: str, model: Path, store: Store
) -> None:
    """The digest stands for the files as the other saw them, not as they are after the waiting."""
    proto = onnx_models.conv_net(seed=5)
    proto.producer_name = "other"
    new = onnx_models.external_data(model.parent.parent / "new", proto)
    found = []

    def meanwhile() -> None:
        found.append(GraphMemo(store, FakeClock(_later(model))).identify(model))
        (new.parent / which).replace(model.parent / which)

    store.meanwhile = meanwhile
    mine = GraphMemo(store, FakeClock(_later(model))).identify(model)
    assert mine == identify(model)
    assert (mine.weights, mine.metadata) != (found[0].weights, found[0].metadata)


def test_errors_are_not_remembered(tmp_path: Path, store: Store) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"nothing")
    memo = GraphMemo(store, FakeClock(model.stat().st_ctime + 1))
    with pytest.raises(ModelError):
        memo.identify(model)
    assert not store
