"""Links and the right to run a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trivet.errors import CorruptEntry, TrivetError
from trivet.plans.folders.specials import (
    NAME,
    Specials,
    apply_specials,
    specials_of,
    take_specials,
    write_specials,
)


def test_what_was_read_can_be_applied_elsewhere(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "d").mkdir(parents=True)
    (here / "d" / "tool").touch(mode=0o755)
    (here / "plain").touch(mode=0o644)
    (here / "link").symlink_to(here / "d" / "tool")
    found = specials_of(here, ())
    assert found == Specials(runnable=("d/tool",), links={"link": "d/tool"})
    (there / "d").mkdir(parents=True)
    (there / "d" / "tool").touch(mode=0o644)
    write_specials(there, found)
    apply_specials(there)
    assert os.access(there / "d" / "tool", os.X_OK)
    assert (there / "link").resolve() == there / "d" / "tool"
    assert not (there / NAME).exists()


def test_nothing_special_leaves_nothing(tmp_path: Path) -> None:
    write_specials(tmp_path, Specials())
    assert os.listdir(tmp_path) == []
    assert take_specials(tmp_path) == Specials()


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "d/../../outside"])
def test_no_link_leads_out(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "d").mkdir(parents=True)
    (folder / "link").symlink_to(target)
    with pytest.raises(TrivetError, match="leads out"):
        specials_of(folder, ())
    (folder / "link").unlink()
    write_specials(folder, Specials(links={"link": target}))  # as a forger would
    with pytest.raises(CorruptEntry, match="leads out"):
        apply_specials(folder)


@pytest.mark.parametrize("name", ["../link", "/tmp/link-of-nobody"])
def test_no_link_is_made_outside(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write_specials(tmp_path / "folder", Specials(links={name: "a"}))
    with pytest.raises(CorruptEntry):
        apply_specials(tmp_path / "folder")
    assert not (tmp_path / "link").exists()


def test_a_file_outside_is_not_made_runnable(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "outside").touch(mode=0o600)
    write_specials(tmp_path / "folder", Specials(runnable=("../outside",)))
    with pytest.raises(CorruptEntry):
        apply_specials(tmp_path / "folder")
    assert (tmp_path / "outside").stat().st_mode & 0o111 == 0
