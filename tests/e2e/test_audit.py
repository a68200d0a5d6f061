"""``trivet audit``: it finds what ONNX Runtime's and OpenVINO's caches do, and leaves nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import COMMAND, environment

from trivet.audit import probes

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "explanation" / "audit"
FOUND = {
    "onnxruntime-other-weights": "wrong",
    "onnxruntime-flipped-bit": "wrong",
    "onnxruntime-cut-file": "not healed",
    "onnxruntime-saved-under-a-server": "fails",
    "onnxruntime-unknown-option": "wasteful",
    "openvino-external-weights": "wrong",
    "openvino-ir-weights": "wrong",
    "openvino-preserved-time": "wrong",
    "openvino-flipped-bit": "wrong",
    "openvino-optimize-size": "wasteful",
    "openvino-many-processes": "wasteful",
}
EMULATED = "onnxruntime-other-processor"


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command, with everything that it could leave something in inside ``folder``."""
    for each in ("tmp", "home"):
        (folder / each).mkdir(exist_ok=True)
    own = {"TMPDIR": str(folder / "tmp"), "HOME": str(folder / "home")}
    return subprocess.Popen(
        [COMMAND, "audit", *arguments],
        env=environment(folder / "cache", **own),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_over(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]


def test_every_finding_has_a_page_and_every_page_a_finding() -> None:
    ids = {each.id for each in probes()}
    assert len(ids) >= 20
    assert {each.stem for each in PAGES.glob("*.md")} == ids | {"README"}
    index = (PAGES / "README.md").read_text()
    for each in probes():
        assert (ROOT / each.page).is_file()
        assert f"({each.id}.md)" in index
        page = (ROOT / each.page).read_text()
        assert re.findall("^## (.*)$", page, re.MULTILINE) == [
            "What happens",
            "Why",
            "How to guard",
        ]
        assert f"trivet audit {each.id}\n" in page


def test_what_the_caches_of_the_tested_releases_do_and_that_trivet_does_not(
    tmp_path: Path,
) -> None:
    """A release that mends something fails here: its page needs a word about that."""
    process = start(tmp_path, "--json", *FOUND)
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    told = json.loads(out)
    found: dict[str, Any] = {each["id"]: each for each in told["findings"]}
    assert {name: each["own"] for name, each in found.items()} == FOUND, out
    assert {each["guarded"] for each in found.values()} == {"right"}
    assert told["summary"]["guarded_wrong"] == 0
    assert told["summary"]["guarded_right"] == len(FOUND)
    assert left_over(tmp_path) == []


@pytest.mark.needs("qemu-user")
def test_a_plan_is_right_on_an_older_processor(tmp_path: Path) -> None:
    """Whether ONNX Runtime's own file is wrong there depends on the processor of this machine."""
    process = start(tmp_path, "--json", EMULATED)
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    (found,) = json.loads(out)["findings"]
    assert found["own"] in ("wrong", "not reproduced"), found
    assert found["guarded"] == "right", found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_audit_that_is_ended_leaves_nothing(number: int, tmp_path: Path) -> None:
    process = start(tmp_path, "openvino")
    until = time.monotonic() + 60
    while not any(tmp_path.rglob("answers")) and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert left_over(tmp_path) == []
    assert running_in(tmp_path) == []


def running_in(folder: Path) -> list[int]:
    """Processes whose working folder is, or was, below ``folder``."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            place = os.readlink(each / "cwd")
        except OSError:
            continue
        if place.startswith(str(folder)):
            found.append(int(each.name))
    return found
