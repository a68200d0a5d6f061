"""The page about Triton keeps its word."""

from __future__ import annotations

from pathlib import Path

from tests.support.docs import expect_examples_run


def test_examples_of_the_page_run(tmp_path: Path) -> None:
    expect_examples_run("docs/how-to/triton.md", tmp_path)
