"""A forked child has copies of its parent's leases, and gives up none of them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

from tests.support.engine import SOURCE, key

from trivet.cache import Artifact, ArtifactLease, Cache, Hit

CHILD_ENDS = """
import os, sys
from pathlib import Path
from trivet import Cache
from trivet.keys import Key

with Cache.open(sys.argv[1]) as cache, Cache(None) as nowhere:
    lease = cache.acquire_files(Key("test/1", {"n": 0}))
    unkept = nowhere.acquire_files(Key("test/1", {"n": 1}))
    (unkept.staging / "a").write_text("unkept")
    unkept = unkept.commit()
    (lease.staging / "a").write_text("made")
    if os.fork() == 0:
        sys.exit(0)  # as an interpreter ends: all that has to be done at the end is done
    assert os.wait()[1] == 0
    made = lease.commit()
    print((unkept.verify() / "a").read_text(), (made.verify() / "a").read_text())
"""


def test_a_child_that_ends_leaves_files_and_leases_to_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD_ENDS, str(tmp_path / "c")],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "unkept made\n"
    assert list(tmp_path.glob("trivet-*")) == []


def test_a_lease_that_a_child_forgets_is_still_held(tmp_path: Path) -> None:
    with Cache.open(tmp_path / "c") as cache:
        lease = cache.acquire_files(key())
        assert isinstance(lease, ArtifactLease)
        (lease.staging / "a").write_text("made")
        child = os.fork()
        if child == 0:
            lease.abandon()
            del lease
            gc.collect()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert isinstance(lease.commit(), Artifact)
        assert isinstance(cache.get_files(key()), Hit)
