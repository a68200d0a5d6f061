"""The pages about PyTorch keep their word."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.docs import environment, expect_examples_run


@pytest.mark.parametrize("page", ["docs/how-to/pytorch.md", "docs/tutorial/warm-server.md"])
def test_examples_of_the_page_run(page: str, tmp_path: Path) -> None:
    given = environment(tmp_path)
    del given["PYTHONWARNINGS"]  # importing Inductor warns of PyTorch's own deprecations
    expect_examples_run(page, tmp_path, given)
