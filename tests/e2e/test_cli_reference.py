"""The reference page of the command line is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.commands import known_commands

from trivet.cli import main
from trivet.cli.planfile import read_plan_file
from trivet.events import MissReason
from trivet.warm.planfile import ModelEntry, ReferenceFiles

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/cli.md").read_text()
COMMANDS = [
    "run",
    "exec",
    "warm",
    "gate",
    "fill",
    "why",
    "fingerprint",
    "ls",
    "show",
    "stats",
    "usage",
    "verify",
    "gc",
    "drop",
    "expire",
    "bundle create",
    "bundle verify",
    "bundle install",
    "bundle diff",
    "bundle keygen",
    "doctor",
    "audit",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_the_command_is_described(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--help"]) == 0
    options = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    options |= {"--json"}
    assert {each for each in options - {"--help"} if each not in PAGE} == set()


def test_every_finding_of_the_doctor_is_described() -> None:
    source = "".join(each.read_text() for each in (ROOT / "src/trivet/cli/doctor").glob("*.py"))
    codes = set(re.findall(r'\b(?:info|warning|error|kind)\(\s*"([a-z-]+)"', source))
    assert len(codes) > 20
    assert {each for each in codes if f"`{each}`" not in PAGE} == set()
    listed = set(
        re.findall(r"^\| `([a-z-]+)`[^|]*\| (?:info|warning|error) \|", PAGE, re.MULTILINE)
    )
    reasons = {reason.value for reason in MissReason}
    elsewhere = {"volatile-factor"}  # found by `trivet.plans.volatile`
    assert listed - codes - reasons - elsewhere == set()


def test_the_plan_file_on_the_page_can_be_read(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/plan-file.md").read_text()
    (content,) = re.findall(r"^```toml$(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    file = tmp_path / "plan.toml"
    file.write_text(content)
    first, second = read_plan_file(file)
    assert first.path == tmp_path / "resnet50.onnx"
    assert second.shapes.mask == "attention_mask"
    names = {*ModelEntry.__struct_fields__, *ReferenceFiles.__struct_fields__}
    told = set(re.findall(r"^(\w+) =", content, re.MULTILINE))
    assert names - told == {"reference"}


def test_every_exit_code_is_described() -> None:
    from trivet.cli import app, guarded

    described = set(re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE))
    codes = (app.FAILED, app.NOT_FOUND, app.INTERRUPTED, app.PIPE_CLOSED, 2, 0)
    assert described == {str(each) for each in codes}
    assert f"| {guarded.CANNOT_RUN}, {guarded.NOT_THERE} |" in PAGE


def test_there_are_at_most_forty_options_in_all() -> None:
    """Counted by name, whichever commands take it; ``--help`` is left out."""
    names = {name for options in known_commands().values() for name in options}
    assert len(names - {"--help"}) <= 40
