"""Links and the right to run a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trivet.errors import CorruptEntry, TrivetError
from trivet.plans.folders.attributes import (
    NAME,
    Attributes,
    apply_attributes,
    attributes_of,
    take_attributes,
    write_attributes,
)


def test_what_was_read_can_be_applied_elsewhere(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "d").mkdir(parents=True)
    (here / "d" / "tool").touch(mode=0o755)
    (here / "plain").touch(mode=0o644)
    (here / "link").symlink_to(here / "d" / "tool")
    found = attributes_of(here, ())
    assert found == Attributes(runnable=("d/tool",), links={"link": "d/tool"})
    (there / "d").mkdir(parents=True)
    (there / "d" / "tool").touch(mode=0o644)
    write_attributes(there, found)
    apply_attributes(there)
    assert os.access(there / "d" / "tool", os.X_OK)
    assert (there / "link").resolve() == there / "d" / "tool"
    assert not (there / NAME).exists()


def test_nothing_special_leaves_nothing(tmp_path: Path) -> None:
    write_attributes(tmp_path, Attributes())
    assert os.listdir(tmp_path) == []
    assert take_attributes(tmp_path) == Attributes()


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "d/../../outside"])
def test_no_link_leads_out(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "d").mkdir(parents=True)
    (folder / "link").symlink_to(target)
    with pytest.raises(TrivetError, match="leads out"):
        attributes_of(folder, ())
    (folder / "link").unlink()
    write_attributes(folder, Attributes(links={"link": target}))  # as a forger would
    with pytest.raises(CorruptEntry, match="leads out"):
        apply_attributes(folder)


@pytest.mark.parametrize("name", ["../link", "/tmp/link-of-nobody"])
def test_no_link_is_made_outside(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write_attributes(tmp_path / "folder", Attributes(links={name: "a"}))
    with pytest.raises(CorruptEntry):
        apply_attributes(tmp_path / "folder")
    assert not (tmp_path / "link").exists()


def test_a_file_outside_is_not_made_runnable(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "outside").touch(mode=0o600)
    write_attributes(tmp_path / "folder", Attributes(runnable=("../outside",)))
    with pytest.raises(CorruptEntry):
        apply_attributes(tmp_path / "folder")
    assert (tmp_path / "outside").stat().st_mode & 0o111 == 0
