"""``trivet exec`` on disks that are nearly full: frameworks fail when they can't write."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.disks import small_disk
from tests.support.toys import COMPILE, GUARD, python, start, toy

pytestmark = pytest.mark.needs("root")

SAYS_WHERE = "import os\nprint(os.environ['TOY_CACHE'])"
# Random, so that no file system packs it.
BIG = "import os\nopen(os.environ['TOY_CACHE'] + '/big', 'wb').write(os.urandom({} << 20))"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 64) as path:
        yield path


def test_folders_are_elsewhere_where_the_caches_disk_has_little_room(
    disk: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    more = {"TMPDIR": str(elsewhere)}
    for expected in ("miss a\n", "hit a code of a\n"):
        process = start(disk / "c", [*python(COMPILE), "a"], *GUARD, more=more)
        assert process.communicate(timeout=60)[0] == expected
    process = start(disk / "c", python(SAYS_WHERE), *GUARD, more=more)
    assert process.communicate(timeout=60)[0].startswith(str(elsewhere))


def test_what_dead_runs_left_does_not_keep_the_disk_full(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with small_disk(tmp_path / "large", 570) as large:
        toy(large / "c", "a")
        left = large / "c" / "runs" / "run-dead"
        left.mkdir(parents=True)
        (left / "lock").touch()
        (left / "big").write_bytes(bytes(60 << 20))
        for expected in (elsewhere, large):
            more = {"TMPDIR": str(elsewhere)}
            process = start(large / "c", python(SAYS_WHERE), *GUARD, more=more)
            assert process.communicate(timeout=60)[0].startswith(str(expected))


def test_a_program_has_its_own_folder_where_no_disk_has_room(disk: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (disk / "tmp").mkdir()
    more = {"TMPDIR": str(disk / "tmp"), "TOY_CACHE": str(own)}
    process = start(disk / "c", python(SAYS_WHERE), *GUARD, more=more)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, f"{own}\n"), err
    assert "TOY_CACHE is left alone: " in err
    assert "MB of room" in err


def test_what_would_fill_the_disk_is_not_restored(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    with small_disk(tmp_path / "large", 630) as disk:
        made = start(disk / "c", python(BIG.format(60)), *GUARD)
        assert made.communicate(timeout=60)[1].endswith("kept 1 file\n")
        process = start(disk / "c", python(SAYS_WHERE), *GUARD, more={"TOY_CACHE": str(own)})
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, f"{own}\n"), err
    assert "TOY_CACHE is left alone: " in err
    assert "MB of room" in err


def test_folders_are_elsewhere_where_nothing_on_the_caches_disk_may_be_run(tmp_path: Path) -> None:
    """What Inductor compiles there can't be loaded, and the program would fail."""
    with small_disk(tmp_path / "large", 630) as disk:
        subprocess.run(["mount", "-o", "remount,noexec", str(disk)], check=True)
        made = "import os, subprocess\ntool = os.environ['TOY_CACHE'] + '/tool'\n"
        made += "open(tool, 'w').write('#!/bin/sh\\necho ran\\n'); os.chmod(tool, 0o700)\n"
        runs = "import os, subprocess\nsubprocess.run([os.environ['TOY_CACHE'] + '/tool'])"
        for code in (made + runs, runs):
            process = start(disk / "c", python(code), *GUARD)
            assert process.communicate(timeout=60)[0] == "ran\n"


def test_a_disk_with_room_is_used(tmp_path: Path) -> None:
    with small_disk(tmp_path / "large", 630) as disk:
        for expected in ("miss a", "hit a code of a"):
            assert toy(disk / "c", "a")[0] == [expected]
        process = start(disk / "c", python(SAYS_WHERE), *GUARD)
        assert process.communicate(timeout=60)[0].startswith(str(disk))
