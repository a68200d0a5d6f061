"""``trivet exec --explain``, after real runs: what would be found, and which field differs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import COMMAND, environment, trivet

from trivet.cache import ArtifactLease, Cache
from trivet.plans.installed import file_digest

PROGRAM = """
import os
from pathlib import Path
(Path(os.environ["TOY_CACHE"]) / "compiled").write_text("code")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "serve.py"
    path.write_text(PROGRAM)
    return path


class Toy:
    """Runs and explains one command on one cache folder."""

    def __init__(self, cache: Path, program: Path) -> None:
        self.cache = cache
        self._program = program

    def _line(self, *options: object, salt: str) -> list[str]:
        given = ("--folder", "TOY_CACHE", "--salt", f"toy={salt}")
        return list(map(str, ("exec", *given, *options, "--", sys.executable, self._program)))

    def run(self, *options: object, salt: str = "1", **more: str) -> None:
        line = [COMMAND, *self._line(*options, salt=salt)]
        env = environment(self.cache, **more)
        subprocess.run(line, env=env, check=True, capture_output=True, timeout=120)

    def explain(self, *options: object, salt: str = "1", **more: str) -> tuple[int, Any]:
        line = self._line(*options, "--explain", "--json", salt=salt)
        done = trivet(self.cache, *line, **more)
        assert "Traceback" not in done.err
        told = {each["framework"]: each for each in done.json()["folders"]}
        return done.code, told["TOY_CACHE"]

    def text(self, *options: object, salt: str = "1") -> str:
        return trivet(self.cache, *self._line(*options, "--explain", salt=salt)).out


@pytest.fixture
def toy(tmp_path: Path, program: Path) -> Toy:
    return Toy(tmp_path / "cache", program)


def fields(verdict: Any) -> list[str]:
    return [each["field"] for each in verdict["nearest"]["differences"]]


def test_what_was_kept_would_be_found_by_another_process(toy: Toy) -> None:
    toy.run()
    code, told = toy.explain()
    assert (code, told["hit"], told["files"]) == (0, True, 1)
    assert "would hit" in toy.text()


def test_the_field_that_differs_is_named(toy: Toy, tmp_path: Path) -> None:
    data = tmp_path / "input"
    data.write_text("first")
    toy.run("--input", data)
    code, told = toy.explain("--input", data, salt="2")
    assert (code, told["hit"], told["reason"]) == (3, False, "absent")
    assert told["nearest"]["differences"] == [
        {"field": "salts.toy", "mine": "2", "theirs": "1", "means": "a declared salt"}
    ]
    data.write_text("second")
    assert fields(toy.explain("--input", data)[1]) == ["inputs.0/input"]
    data.write_text("first")
    _, told = toy.explain("--input", data, LD_LIBRARY_PATH="/opt/other")
    assert fields(told) == ["environment.LD_LIBRARY_PATH"]
    shown = toy.text("--input", data, salt="2")
    assert "would miss" in shown
    assert "salts.toy" in shown


def test_nothing_is_run_and_nothing_is_changed(toy: Toy, program: Path, tmp_path: Path) -> None:
    toy.run()
    mark = tmp_path / "mark"
    program.write_text(f"open({str(mark)!r}, 'w')")
    with Cache.open(toy.cache, strict=True) as cache:
        before = [each.key for each in cache.entries("folder/1")]
    assert toy.explain(salt="2")[0] == 3
    assert not mark.exists()
    with Cache.open(toy.cache, strict=True) as cache:
        assert [each.key for each in cache.entries("folder/1")] == before


def test_damage_is_seen_before_a_program_is_given_it(toy: Toy) -> None:
    toy.run()
    (kept,) = toy.cache.glob("artifacts/*/*/files/compiled")
    kept.write_text("evil")
    code, told = toy.explain()
    assert (code, told["hit"], told["reason"]) == (3, False, "corrupt")
    assert "the kept folder is damaged" in toy.text()


def test_where_nothing_was_ever_kept_there_is_nothing_to_find(toy: Toy) -> None:
    toy.cache.mkdir(mode=0o700)
    code, told = toy.explain()
    assert (code, told["nearest"]) == (3, None)
    assert "nothing     of TOY_CACHE is kept" in toy.text()


def test_without_a_cache_folder_it_is_an_error_and_none_is_made(toy: Toy) -> None:
    done = trivet(toy.cache, "exec", "--explain", "--json", "--", "true")
    assert done.code == 1
    assert "there is no cache folder" in done.json()["error"]["message"]
    assert not toy.cache.exists()


def test_the_doctor_names_what_changes_at_every_start(toy: Toy) -> None:
    toy.run("--salt", "pod=10.42.7.19")
    found = trivet(toy.cache, "doctor", "--json").json()["sections"]
    (section,) = (each for each in found if each["name"] == "exec TOY_CACHE")
    assert section["summary"].startswith("1 folder kept")
    (finding,) = section["findings"]
    assert finding["code"] == "volatile-factor"
    assert "salts.pod" in finding["message"]
    assert "an IP address" in finding["message"]
    assert not [x for each in found for x in each["findings"] if x["code"] == "empty"]


def test_files_that_a_run_only_learns_of_are_compared_as_they_are(
    toy: Toy, program: Path, tmp_path: Path
) -> None:
    """Else every shared library that the program loads would look like a difference."""
    library = tmp_path / "ops.so"
    library.write_bytes(b"code")
    toy.run()
    with Cache.open(toy.cache, strict=True) as cache:
        (entry,) = cache.entries("folder/1")
        digest = file_digest(library)
        learnt = entry.key.replace(implementations={str(library): digest})
        lease = cache.acquire_files(learnt)
        assert isinstance(lease, ArtifactLease)
        with lease:
            (lease.staging / "compiled").write_text("code")
            lease.commit()
        cache.forget(entry.key)
    assert fields(toy.explain(salt="2")[1]) == ["salts.toy"]
    library.write_bytes(b"other")
    assert fields(toy.explain(salt="2")[1]) == [f"implementations.{library}", "salts.toy"]
