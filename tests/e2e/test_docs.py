"""The documentation keeps its word: examples run, links resolve, lists are complete."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from tests.support.commands import known_commands, unknown_words
from tests.support.docs import ROOT, blocks, commands, expect_examples_run, missing_line

import trivet
from trivet.audit import probes
from trivet.cli import main
from trivet.cli.app import app
from trivet.events import EventKind, MissReason
from trivet.plans import facts
from trivet.plans.backends import OnnxRuntime, OpenVino, Torch
from trivet.plans.backends.named import BackendName
from trivet.plans.host import read_host
from trivet.plans.key import CLASSIFIED, IN_KEY

RUN = (
    "README.md",
    "docs/tutorial/first-plan-cache.md",
    "docs/tutorial/never-twice.md",
    "docs/how-to/add-a-backend.md",
    "docs/how-to/add-a-store.md",
    "docs/how-to/bundles.md",
    "docs/how-to/containers.md",
    "docs/how-to/gate-a-release.md",
    "docs/how-to/guard-any-command.md",
    "docs/how-to/limit-disk-use.md",
    "docs/how-to/limit-memory.md",
    "docs/how-to/memoise.md",
    "docs/how-to/read-only.md",
    "docs/how-to/readiness.md",
    "docs/how-to/share-between-hosts.md",
    "docs/how-to/warm-before-traffic.md",
    "docs/how-to/what-changed.md",
    "docs/how-to/why-it-missed.md",
    "docs/reference/python.md",
    "docs/explanation/how-a-hit-is-proven.md",
    "docs/explanation/leases.md",
)
WITH_PYTORCH = ("docs/how-to/pytorch.md", "docs/tutorial/warm-server.md")  # run by tests/torch
READ = (
    "docs/how-to/tensorrt.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/README.md",
    "docs/reference/cli.md",
    "docs/reference/configuration.md",
    "docs/reference/events.md",
    "docs/reference/key-fields.md",
    "docs/reference/on-disk-format.md",
    "docs/reference/plan-file.md",
    "docs/explanation/eviction.md",
    "docs/explanation/field-cases.md",
    "docs/explanation/instruction-sets.md",
    "docs/explanation/shared-tier.md",
    "docs/explanation/threat-model.md",
)
AUDIT = ("docs/explanation/audit/README.md", *(each.page for each in probes()))
ELSEWHERE = (
    "docs/how-to/iree-and-jax.md",  # run by tests/jax/test_page.py
    "docs/how-to/triton.md",  # by tests/triton
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every page that a reader can meet."""
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", RUN)
def test_examples_of_the_page_run(page: str, tmp_path: Path) -> None:
    expect_examples_run(page, tmp_path)


def test_every_page_is_listed_and_those_with_examples_are_run() -> None:
    decisions = ROOT / "docs" / "decisions"
    found = {str(each.relative_to(ROOT)) for each in pages() if decisions not in each.parents}
    assert found == {*RUN, *READ, *AUDIT, *ELSEWHERE, *WITH_PYTORCH}
    runnable = {
        page
        for page in found
        if any(
            each.kind in ("python", "console") and not each.title
            for each in blocks((ROOT / page).read_text())
        )
    }
    assert runnable <= {*RUN, *ELSEWHERE, *WITH_PYTORCH}


def test_relative_links_lead_somewhere() -> None:
    broken = []
    for page in pages():
        for target in _LINK.findall(_CODE.sub("", page.read_text())):
            if target.startswith(("http://", "https://")):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name) if name else page
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


def _anchors(page: Path) -> set[str]:
    titles = _HEADING.findall(_CODE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in titles}


def test_commands_and_options_that_pages_name_exist() -> None:
    known = known_commands()
    today = [each for each in pages() if each.parent.name != "decisions"]
    found = [
        f"{page.relative_to(ROOT)}: {each}"
        for page in today
        for each in unknown_words(page.read_text(), known)
    ]
    assert found == []


def test_a_command_or_option_that_is_gone_is_noticed() -> None:
    known = {"": {"--version"}, "run": {"--input"}}
    page = "`--gone` and `trivet run --inptu x`, `trivet rnu`\n```\n$ trivet run -- x --y\n```\n"
    assert list(unknown_words(page, known)) == [
        "--gone",
        "--inptu in trivet run --inptu x",
        "trivet rnu",
    ]


def test_every_event_and_miss_reason_is_explained() -> None:
    text = (ROOT / "docs/reference/events.md").read_text()
    names = [*EventKind, *MissReason]
    assert [each for each in names if f"| `{each}` |" not in text] == []


def test_every_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/python.md").read_text()
    assert [each for each in trivet.__all__ if f"`{each}" not in text] == []


def test_every_key_field_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/key-fields.md").read_text()
    groups = {"GraphId": "graph", "BackendFacts": "backend", "HostFacts": "host"}
    names = {"shapes", "host.instruction_set"}
    for kind, table in CLASSIFIED.items():
        names |= {f"{groups[kind.__name__]}.{name}" for name in table if table[name] == IN_KEY}
    for backend in (OnnxRuntime(), OpenVino(), Torch()):
        names |= set(backend.key_fields(read_host({})))
    assert [each for each in sorted(names) if f"`{each}`" not in text] == []


def test_every_variable_that_enters_keys_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/configuration.md").read_text()
    frameworks = {each.name for each in pkgutil.iter_modules(facts.__path__)} - {"machine"}
    assert set(BackendName) <= frameworks
    names = set()
    for each in frameworks:
        rules = importlib.import_module(f"trivet.plans.facts.{each}").ENVIRONMENT
        names |= {*rules.prefixes}
        names |= {name for name in rules.names if not name.startswith(rules.prefixes)}
    assert [each for each in sorted(names) if f"`{each}`" not in text] == []


def test_every_command_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text()
    assert main(["--version"]) == 0  # registers the commands
    names = [each.name for each in (*app.registered_commands, *app.registered_groups)]
    assert [each for each in names if f"[`trivet {each}" not in text] == []


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    files = sorted(each.name for each in folder.glob("[0-9]*.md"))
    assert [int(each[:4]) for each in files] == list(range(len(files)))
    index = (folder / "README.md").read_text()
    assert [each for each in files if f"({each})" not in index] == []


def test_page_runner_finds_blocks_and_commands() -> None:
    page = "x\n```python\na = 1\n```\n<!-- exit: 3 -->\n```console\n$ false   # why\nno\n$ b\n```\n"
    python, console = blocks(page)
    assert (python.kind, python.text, python.line) == ("python", "a = 1\n", 3)
    assert (console.exit_code, console.line) == (3, 7)
    assert list(commands(console.text)) == [("false   # why", ["no"]), ("b", [])]


def test_page_runner_notices_output_that_changed() -> None:
    output = "hit  0.12 s\nkey 0123456789abcdef\nend\n"
    assert missing_line(["hit 3.4 s", "…", "end"], output) is None
    assert missing_line(["key fedcba9876543210"], output) is None
    assert missing_line(["miss 0.12 s"], output) == "miss 0.12 s"
    assert missing_line(["end", "hit 0.12 s"], output) == "hit 0.12 s"
