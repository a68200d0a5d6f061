"""Options of ``trivet exec`` that are read without the parser mean what the parser says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trivet.cli import exec as exec_
from trivet.cli import quick
from trivet.cli.app import app
from trivet.cli.guarded import ExecOptions

WORDS = [
    *("--json", "--quiet", "--explain", "--help", "--cache-dir", "--cache-dir=a", "--cache-dir="),
    *("--layer", "--layer=b", "--shared", "--shared=file:///c", "--wait", "--wait=3", "--wait=x"),
    *("--wait=-1", "--input", "--input=there", "--input=gone", "--ready=http://d", "--salt=a=b"),
    *("--keep-on=USR1", "--folder=F", "--unknown", "--json=1", "-q", "there", "7", "nan", "", "--"),
    *("python", "-c"),
]  # fmt: skip


def parsed(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> ExecOptions | None:
    """What the parser makes of it; None where it refuses, or answers itself."""
    found: list[ExecOptions] = []
    monkeypatch.setattr(exec_, "run", found.append)
    with pytest.raises(SystemExit):
        app(["exec", *arguments], prog_name="trivet")
    return found[0] if found else None


@given(before=st.lists(st.sampled_from(WORDS), max_size=5), after=st.lists(st.sampled_from(WORDS)))
@settings(
    max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_what_is_read_is_what_the_parser_reads(
    before: list[str],
    after: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "there").touch()
    monkeypatch.chdir(tmp_path)
    arguments = [*before, "--", *after]
    read = quick.read(arguments, {})
    assert read is None or read == parsed(arguments, monkeypatch)


def test_the_usual_ones_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (
        ["--", "python", "serve.py", "--json"],
        ["--cache-dir", str(tmp_path), "--ready=http://h/", "--quiet", "--", "python"],
        ["--shared", "s3://a/b", "--shared=valkey://h", "--layer", "x", "--wait=3", "--", "true"],
    ):
        read = quick.read(arguments, {})
        assert read is not None
        assert read == parsed(arguments, monkeypatch)
    monkeypatch.setenv("TRIVET_CACHE_DIR", str(tmp_path))
    arguments = ["--json", "--", "true"]
    read = quick.read(arguments, {"TRIVET_CACHE_DIR": str(tmp_path)})
    assert read is not None
    assert read == parsed(arguments, monkeypatch)


def test_lists_in_the_environment_are_left_to_the_parser() -> None:
    for name in ("TRIVET_SHARED", "TRIVET_LAYERS", "TRIVET_DEBUG"):
        assert quick.read(["--", "true"], {name: "1"}) is None
