"""Folders of runs, under a umask that leaves nothing."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
from tests.support.disks import reachable

from trivet.plans.folders.runfolder import RunFolder
from trivet.testing.crash import run_forked

NOBODY = 65534


@pytest.mark.needs("root")
def test_a_run_that_may_open_nothing_keeps_no_later_one_from_its_folder() -> None:
    with reachable() as place:
        place.chmod(0o777)

        def runs() -> None:
            os.setuid(NOBODY)
            os.umask(0o777)
            with suppress(PermissionError):
                RunFolder(place / "runs")
            os.umask(0o022)
            RunFolder(place / "runs").close()

        assert run_forked(runs) == 0
