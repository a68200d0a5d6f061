"""What a forked child gets of its parent's index: nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.store_entries import entry

from trivet.stores.host import HostStore
from trivet.stores.host.folder import Folder


def test_no_child_inherits_an_open_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing it in the child made pages of the parent's running reads free to be overwritten."""
    store = HostStore.open(tmp_path / "c")
    store.write(*entry("a"))
    let_go = Folder.after_fork_in_child

    def look_first(self: Folder, *, held: bool) -> None:
        if self.env.attached:
            os._exit(7)
        let_go(self, held=held)

    monkeypatch.setattr(Folder, "after_fork_in_child", look_first)
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert store.folder.env.attached, "the parent has it open again"
    assert store.read(entry("a")[0]) == entry("a")[1]
    store.close()
