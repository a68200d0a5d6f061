"""Examples run as their first lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "text_to_image.py"


def run(folder: Path, *arguments: str, program: Path = EXAMPLE) -> list[str]:
    command = [sys.executable, str(program), str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def computed(line: str) -> str:
    return line.partition("computed ")[2]


def test_stages_of_a_pipeline_are_shared_over_seeds_and_processes(tmp_path: Path) -> None:
    first = run(tmp_path / "c", "a cat", "1", "2")
    assert [*map(computed, first)] == [
        "encode 0, encode 1, denoise 1, decode", "denoise 2, decode",
    ]  # fmt: skip
    again = run(tmp_path / "c", "a cat", "2", "3")
    assert [*map(computed, again)] == ["nothing", "denoise 3, decode"]
    assert again[0].partition(";")[0] == first[1].partition(";")[0]


def test_another_step_is_computed_from_there_on(tmp_path: Path) -> None:
    run(tmp_path / "c", "a cat", "1")
    edited = tmp_path / "edited.py"
    text = EXAMPLE.read_text()
    assert "code - 0.1 * torch" in text
    edited.write_text(text.replace("code - 0.1 * torch", "code - 0.2 * torch"))
    (line,) = run(tmp_path / "c", "a cat", "1", program=edited)
    assert computed(line) == "denoise 1, decode"
