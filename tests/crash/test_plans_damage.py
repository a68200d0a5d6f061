"""Field cases: every file of a stored plan and of the cache folder, damaged in every way.

Each case is an answer by a process of its own on a damaged copy of a populated folder, and one more
by the process after it: both right, whatever happened to the files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tests.support.cases import BACKENDS, Server, answer, close, mlp_answer, mlp_input
from tests.support.onnx_models import mlp, save

PROTO = mlp(64, batch=2, seed=4)
EXPECTED = mlp_answer(PROTO, mlp_input(2, 64))
FLIPS = 6


class Populated(NamedTuple):
    """A cache folder with one plan, its model, and a process that answers."""

    folder: Path
    model: Path
    backend: str
    server: Server


@pytest.fixture(scope="module", params=BACKENDS)
def populated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Populated]:
    root = tmp_path_factory.mktemp("populated")
    model = save(PROTO, root / "m.onnx")
    with Server(request.param) as server:
        for source in ("compiled", "cache"):
            found = server.answer(root / "c", model, request.param)
            assert (found["source"], close(found, EXPECTED)) == (source, True)
        yield Populated(root / "c", model, request.param, server)


def plan_files(folder: Path) -> list[Path]:
    """What is verified at a load, relative to ``folder``."""
    found = [each.relative_to(folder) for each in folder.glob("artifacts/*/*/files/**/*")]
    return sorted(each for each in found if (folder / each).is_file())


def damages(content: bytes, flips: int) -> Iterator[tuple[str, bytes | None]]:
    """Names and contents; None removes the file."""
    for position in np.linspace(0, len(content) - 1, flips, dtype=int).tolist():
        flipped = bytearray(content)
        flipped[position] ^= 1 << (position % 8)
        yield f"bit of byte {position}", bytes(flipped)
    yield "cut", content[: len(content) // 2]
    yield "longer", content + b"\0"
    yield "empty", b""
    yield "gone", None


def damaged(populated: Populated, file: Path, content: bytes | None, to: Path) -> Path:
    """A copy of the folder in which one file has another content."""
    shutil.copytree(populated.folder, to)
    (to / file).unlink()
    if content is not None:
        (to / file).write_bytes(content)
        (to / file).chmod(0o600)
    return to


def test_damage_to_a_plan_is_found_set_aside_and_healed(
    populated: Populated, tmp_path: Path
) -> None:
    files = plan_files(populated.folder)
    assert len(files) == (3 if populated.backend == "onnxruntime" else 2)
    wrong = []
    for file in files:
        for number, (name, content) in enumerate(
            damages((populated.folder / file).read_bytes(), FLIPS)
        ):
            folder = damaged(populated, file, content, tmp_path / f"{file.name}-{number}")
            ask = (folder, populated.model, populated.backend)
            first, second = populated.server.answer(*ask), populated.server.answer(*ask)
            reports = [json.loads(each.read_text()) for each in folder.glob("quarantine/*/*.json")]
            seen = (
                first.get("source"),
                first.get("reason"),
                "y" in first and close(first, EXPECTED),
                second.get("source"),
                "y" in second and close(second, EXPECTED),
                len(reports),
                any(file.name in each["reason"] for each in reports),
            )
            if seen != ("compiled", "corrupt", True, "cache", True, 1, True):
                wrong.append((str(file), name, seen))
    assert wrong == []


OTHERS = ("index/data.mdb", "index/lock.mdb", "epochs", "generation", "format.json", "manifest")


@pytest.mark.parametrize("populated", ["onnxruntime"], indirect=True)  # the backend is no matter
@pytest.mark.parametrize("name", [*OTHERS, "activity.jsonl", "CACHEDIR.TAG", "lock"])
def test_damage_to_the_folder_costs_at_most_a_compile(
    populated: Populated, name: str, tmp_path: Path
) -> None:
    """The index is mapped memory: a process that meets damage there may die, the next must not."""
    if name == "manifest":
        (path,) = populated.folder.glob("artifacts/*/*/manifest")
        file = path.relative_to(populated.folder)
    else:
        file = Path(name)
    content = (populated.folder / file).read_bytes()
    flips = 0 if not content else 12 if name == "index/data.mdb" else 3
    wrong = []
    for number, (kind, changed) in enumerate(damages(content, flips)):
        folder = damaged(populated, file, changed, tmp_path / str(number))
        ask = (folder, populated.model, populated.backend)
        first, second, third = (populated.server.answer(*ask) for _ in range(3))
        dies = name.startswith("index/") and first.get("exit", 0) < 0
        right = [dies, *("y" in each and close(each, EXPECTED) for each in (second, third))]
        right[0] = right[0] or ("y" in first and close(first, EXPECTED))
        if right != [True] * 3 or third["source"] != "cache":
            wrong.append((name, kind, right, first, second, third))
    assert wrong == []


@pytest.mark.parametrize("populated", ["onnxruntime"], indirect=True)
def test_a_damaged_manifest_is_noticed_when_the_index_is_made_anew(
    populated: Populated, tmp_path: Path
) -> None:
    (path,) = populated.folder.glob("artifacts/*/*/manifest")
    file = path.relative_to(populated.folder)
    for number, (kind, content) in enumerate(damages(path.read_bytes(), FLIPS)):
        folder = damaged(populated, file, content, tmp_path / str(number))
        shutil.rmtree(folder / "index")
        found = populated.server.answer(folder, populated.model, populated.backend)
        assert "y" in found, (kind, found)
        assert close(found, EXPECTED), kind
        assert found["source"] == "compiled", kind


def test_files_swapped_between_two_plans_are_found(populated: Populated, tmp_path: Path) -> None:
    """Intact files of another model: every checksum of their own still holds."""
    other = save(mlp(64, batch=2, seed=5), tmp_path / "other.onnx")
    folder = tmp_path / "c"
    shutil.copytree(populated.folder, folder)
    populated.server.answer(folder, other, populated.backend)
    mine, theirs = sorted(
        folder.glob("artifacts/*/*/files"),
        key=lambda each: each.parent.name not in {p.name for p in populated.folder.glob("a*/*/*")},
    )
    shutil.rmtree(mine)
    shutil.copytree(theirs, mine)
    found = populated.server.answer(folder, populated.model, populated.backend)
    assert (found["source"], close(found, EXPECTED)) == ("compiled", True)


def test_the_same_file_damaged_again_and_again_ends_in_answers_without_the_cache(
    tmp_path: Path,
) -> None:
    """A disk or a writer that damages what it is given: right answers, and no endless repair."""
    model = save(PROTO, tmp_path / "m.onnx")
    for _ in range(3):
        found = answer(tmp_path / "c", model)
        assert close(found, EXPECTED)
        assert found["source"] == "compiled"
        for file in plan_files(tmp_path / "c"):
            (tmp_path / "c" / file).write_bytes(b"damaged")
