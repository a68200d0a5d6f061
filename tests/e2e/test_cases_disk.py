"""Field cases: full disks, folders that can't be written or trusted, and caches that grow."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cases import (
    BACKENDS,
    Forked,
    answer,
    child,
    close,
    make_backend,
    mlp_answer,
    mlp_input,
    result,
)
from tests.support.disks import fill, reachable, small_disk
from tests.support.onnx_models import dynamic_batch, mlp, save

from trivet.cache import Cache
from trivet.errors import StoreError, UnsafeFolder
from trivet.plans.plans import Plans
from trivet.plans.shapes import Shapes

PROTO, OTHER = mlp(seed=9), mlp(seed=10)
X = mlp_input()
EXPECTED, EXPECTED_OTHER = mlp_answer(PROTO, X), mlp_answer(OTHER, X)
BIG = mlp(512, seed=11)  # 2 MiB of weights: more than the small disk holds
EXPECTED_BIG = mlp_answer(BIG, mlp_input(4, 512))
NOBODY = 65534


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(PROTO, tmp_path / "m.onnx")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return save(OTHER, tmp_path / "other.onnx")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 2) as path:
        yield path


@pytest.mark.needs("root")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_disk_that_fills_up_while_compiling_costs_only_the_cache(
    backend: str, disk: Path, tmp_path: Path
) -> None:
    path = save(BIG, tmp_path / "big.onnx")
    for _ in range(2):
        found = answer(disk / "c", path, backend)
        assert close(found, EXPECTED_BIG)
        assert found["source"] != "cache"
        left = [each for each in (disk / "c/staging").rglob("*") if each.is_file()]
        assert left == [], "no part is left behind"
    subprocess.run(["mount", "-o", "remount,size=32m", str(disk)], check=True)
    for source in ("compiled", "cache"):
        found = answer(disk / "c", path, backend)
        assert (found["source"], close(found, EXPECTED_BIG)) == (source, True)


@pytest.mark.needs("root")
def test_a_disk_that_is_full_before_the_start(disk: Path, model: Path, other: Path) -> None:
    answer(disk / "c", model)
    fill(disk)
    found = answer(disk / "c", model)
    assert (found["source"], close(found, EXPECTED)) == ("cache", True), found
    for folder in (disk / "c", disk / "empty"):
        found = answer(folder, other)
        assert found["source"] in ("compiled", "uncompiled")
        assert close(found, EXPECTED_OTHER)
    (disk / "filler").unlink()
    for source in ("compiled", "cache"):
        found = answer(disk / "c", other)
        assert (found["source"], close(found, EXPECTED_OTHER)) == (source, True)


@pytest.mark.needs("root")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_read_only_mount_serves_what_it_holds(
    backend: str, tmp_path: Path, model: Path, other: Path
) -> None:
    """An image layer filled beforehand: hits are hits, misses are answered, nothing is written."""
    folder, empty = tmp_path / "c", tmp_path / "empty"
    empty.mkdir()
    answer(folder, model, backend)
    for path in (folder, empty):
        subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
    try:
        found = answer(folder, model, backend, strict=True)
        assert (found["source"], close(found, EXPECTED)) == ("cache", True)
        for path in (folder, empty):
            found = answer(path, other, backend)
            assert (found["source"], close(found, EXPECTED_OTHER)) == ("compiled", True)
        with pytest.raises(StoreError):
            answer(empty, other, backend, strict=True)
    finally:
        for path in (folder, empty):
            subprocess.run(["umount", "--lazy", str(path)], check=True)
    assert answer(folder, other, backend)["source"] == "compiled", "nothing was kept meanwhile"


@pytest.fixture
def public() -> Iterator[Path]:
    with reachable() as path:
        yield path


def as_nobody(scratch: str, asked: list[list[str]]) -> list[Any]:
    """In a child: answers given by the user nobody, after root has imported everything."""
    answer(scratch, asked[0][1])

    def work(folder: str, path: str) -> Any:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        return answer(folder, path)

    return [Forked(lambda each=each: work(*each)).result() for each in asked]


@pytest.mark.needs("root")
def test_another_user_is_served_from_a_folder_of_root_and_never_refused(
    public: Path, model: Path, other: Path
) -> None:
    shared, closed, own = public / "shared", public / "closed", public / "own"
    model, other = (Path(shutil.copy(each, public)) for each in (model, other))
    answer(shared, model)
    answer(closed, model)
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    for path in (shared, *shared.rglob("*"), model, other):
        path.chmod(0o755 if path.is_dir() else 0o644)
    asked = [
        (shared, model),  # read-only, populated
        (shared, other),  # read-only, a miss
        (closed, model),  # another user's private folder
        (public / "none" / "c", model),  # a folder that can't be made
        (own / "c", other),
        (own / "c", other),
    ]
    found = result(
        child(
            f"{__name__}:as_nobody",
            str(public / "scratch"),
            [[str(folder), str(path)] for folder, path in asked],
            {},
        )
    )
    sources = [each.get("source", each) for each in found]
    assert sources == ["cache", "compiled", "compiled", "compiled", "compiled", "cache"]
    for each, (_, path) in zip(found, asked, strict=True):
        assert close(each, EXPECTED if path == model else EXPECTED_OTHER)


@pytest.mark.needs("root")
@pytest.mark.parametrize("case", ["another user's", "world-writable"])
def test_a_folder_that_others_could_have_filled_is_not_used(
    case: str, tmp_path: Path, model: Path
) -> None:
    folder = tmp_path / "c"
    answer(folder, model)
    if case == "world-writable":
        folder.chmod(0o777)
    else:
        os.chown(folder, NOBODY, NOBODY)
    found = answer(folder, model)
    assert (found["source"], close(found, EXPECTED)) == ("compiled", True)
    assert any("open" in each for each in found["trouble"])
    with pytest.raises(UnsafeFolder):
        answer(folder, model, strict=True)


def test_one_model_with_wild_shapes_does_not_evict_the_others(tmp_path: Path, model: Path) -> None:
    wild = save(dynamic_batch(), tmp_path / "wild.onnx")
    with Cache.open(tmp_path / "c", strict=True, group_entries=8) as cache:
        plans = Plans(cache, make_backend("onnxruntime"))
        first = plans.load(model).loaded.key
        for size in range(1, 21):
            plans.load(wild, Shapes(f"x={size}x16"))
        stored = {each.key.digest for each in cache.entries("plan/1")}
        assert first.digest in stored
        assert len(stored) == 1 + 8
        assert str(plans.load(wild, Shapes("x=20x16")).source) == "cache", "the newest stay"


def test_keys_that_multiply_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wild = save(dynamic_batch(), tmp_path / "wild.onnx")
    with Cache.open(tmp_path / "c", strict=True) as cache:
        plans = Plans(cache, make_backend("onnxruntime"), key_limit=3)
        with caplog.at_level(logging.WARNING, logger="trivet"):
            for size in (1, 2, 3, 3, 2, 1):
                plans.load(wild, Shapes(f"x={size}x16"))
            assert caplog.messages == []
            for size in (4, 5, 6):
                plans.load(wild, Shapes(f"x={size}x16"))
    assert len(caplog.messages) == 1
    assert "wild.onnx" in caplog.messages[0]
    assert "converge" in caplog.messages[0]


def test_the_cache_stays_within_its_budget(tmp_path: Path) -> None:
    """Every plan of these has 64 KiB of weights; four fit."""
    with Cache.open(tmp_path / "c", strict=True, disk_bytes=300_000) as cache:
        plans = Plans(cache, make_backend("onnxruntime"))
        for seed in range(8):
            path = save(mlp(128, 1, seed=seed), tmp_path / f"{seed}.onnx")
            assert str(plans.load(path).source) == "compiled"
        files = [each for each in (tmp_path / "c/artifacts").rglob("*") if each.is_file()]
        assert 3 * 65536 < sum(each.stat().st_size for each in files) <= 300_000
