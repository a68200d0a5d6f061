"""Examples that need no framework run as their first lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def computed(folder: Path, *pictures: str) -> list[str]:
    """What `image_variants.py` computes for each answer."""
    command = [sys.executable, str(EXAMPLES / "image_variants.py"), str(folder), *pictures]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [each.partition("computed ")[2] for each in done.stdout.splitlines()]


def test_all_that_is_asked_about_a_picture_shares_what_the_encoder_saw(tmp_path: Path) -> None:
    assert computed(tmp_path / "c", "2") == [
        "prepare, encode, label",
        "prepare, encode, likeness",
        "prepare, encode, likeness",
    ]
    assert computed(tmp_path / "c", "2", "1") == [
        *["nothing"] * 3,
        "label",
        "prepare, encode, likeness",
        "likeness",
    ]
