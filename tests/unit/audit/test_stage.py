"""Child processes of a probe, and what is left of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trivet.audit.finding import Guarded, NotRun, Own, Probe, Result
from trivet.audit.runner import audit
from trivet.audit.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    (tmp_path / "own").mkdir()
    (tmp_path / "shared").mkdir()
    made = Stage(tmp_path / "own", tmp_path / "shared", limit=2.0)
    yield made
    made.close()


def _wait_for_company(stage: Stage) -> Path:
    """A folder in which a process waits for another one that never comes."""
    return stage.folder("together")


def test_a_child_that_takes_too_long_is_killed(stage: Stage) -> None:
    child = stage.start("together:meet", folder=_wait_for_company(stage), count=2)
    found = child.result()
    assert found.error == "took longer than 2 s and was killed"
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_a_crash_is_a_result(stage: Stage) -> None:
    place = _wait_for_company(stage)
    child = stage.start("together:meet", folder=place, count=2)
    until = time.monotonic() + 60
    while not list(place.iterdir()) and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGSEGV)
    found = child.result()
    assert (found.error, found.crashed) == ("killed by SIGSEGV", True)


def test_what_a_child_raises_comes_back_in_a_line(stage: Stage) -> None:
    found = stage.run("inputs:ramp", shape=["no number"])
    assert found.error.startswith("ValueError: invalid literal")
    assert not found.crashed


def test_a_child_sees_nothing_of_the_users_home_and_settings(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_SOMETHING", "1")
    monkeypatch.setenv("TRIVET_CACHE_DIR", "/somewhere")
    seen = stage._environment()
    assert not {"ORT_SOMETHING", "TRIVET_CACHE_DIR"} & set(seen)
    assert seen["HOME"] == str(stage.root / "home")


def test_closing_removes_also_what_is_read_only(stage: Stage) -> None:
    folder = stage.folder("closed")
    (folder / "file").touch()
    folder.chmod(0o500)
    stage.close()
    assert not stage.root.exists()


def test_what_takes_long_is_prepared_once_and_each_probe_has_its_copy(
    stage: Stage, tmp_path: Path
) -> None:
    calls: list[Path] = []

    def fill(folder: Path) -> None:
        calls.append(folder)
        (folder / "file").write_text("as it was")

    (stage.prepared("own", fill) / "file").write_text("changed")
    (tmp_path / "next").mkdir()
    other = Stage(tmp_path / "next", tmp_path / "shared")
    assert (other.prepared("own", fill) / "file").read_text() == "as it was"
    assert len(calls) == 1


def probe(name: str, **verdicts: object) -> Probe:
    def run(stage: Stage) -> Result:
        if not verdicts:
            raise NotRun("there is none here")
        return Result(own_evidence="", guarded_evidence="", **verdicts)  # type: ignore[arg-type]

    return Probe(id=name, framework="onnxruntime", title=name, run=run)


def test_a_probe_that_can_not_be_tried_says_why_and_the_next_one_goes_on() -> None:
    right = probe("b", own=Own.WRONG, guarded=Guarded.RIGHT)
    asked: list[str] = []
    first, second = audit([probe("a"), right], step=lambda each: asked.append(each.id))
    assert (first.own, first.own_evidence) == (Own.NOT_RUN, "there is none here")
    assert (second.own, second.guarded) == (Own.WRONG, Guarded.RIGHT)
    assert asked == ["a", "b"]


def test_a_guarded_step_that_ends_otherwise_counts_against_the_guard() -> None:
    def run(stage: Stage) -> Result:
        found = stage.run("guarded:answer", model="none", cache=stage.folder("c"), backend="Jax")
        raise AssertionError(found["y"])

    (found,) = audit([Probe(id="a", framework="onnxruntime", title="a", run=run)])
    assert (found.own, found.guarded) == (Own.NOT_RUN, Guarded.NO_BETTER)
    assert "ModelError: there is no model file none" in found.guarded_evidence


def test_a_framework_that_is_not_installed_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.audit.runner.locate", lambda module: None)
    (found,) = audit([probe("a", own=Own.WRONG, guarded=Guarded.RIGHT)])
    assert (found.own, found.guarded) == (Own.NOT_RUN, Guarded.NOT_RUN)
    assert found.own_evidence == "onnxruntime is not installed"
