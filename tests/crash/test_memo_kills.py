"""`kill -9` of processes that keep values of memos in one folder, at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.engine import SOURCE
from tests.support.memo_writer import content_memo, expected
from tests.support.store_entries import files_below

from trivet import Cache
from trivet.cache import Hit
from trivet.stores.host import HostStore

ROUNDS = 50


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_kills_leave_only_right_values(tmp_path: Path) -> None:
    """No bad value, nothing but whole entries in the folder, and it opens at once."""
    folder, rng, killed, kept = tmp_path / "c", random.Random(3), 0, 0
    for each in range(ROUNDS):
        first = each * 1000
        # Two of them ask for the same.
        writers = [start(folder, first + ahead) for ahead in (0, 0, 300, 600)]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.0, 0.1))  # a random moment, not a wait for something
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            killed += writer.wait() == -signal.SIGKILL
            assert writer.stdout is not None
            writer.stdout.close()
        kept += values_kept(folder, range(first, first + 1000))
    assert killed == 4 * ROUNDS
    assert kept > 10 * ROUNDS, "they were killed while they wrote, not before"


def start(folder: Path, first: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from tests.support.memo_writer import main; main()",
            str(folder),
            str(first),
        ],
        stdout=subprocess.PIPE,
        cwd=SOURCE.parent,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )


def values_kept(folder: Path, numbers: range) -> int:
    """How many there are; each is the right one, and the folder is clean."""
    started = time.monotonic()
    with Cache.open(folder, group_entries=None, strict=True) as cache:
        content = content_memo(cache)
        found = [(n, content.look(n)) for n in numbers]
        assert time.monotonic() - started < 20, "the folder opens"
        hits = [(n, each.value) for n, each in found if isinstance(each, Hit)]
        assert all(value == expected(n) for n, value in hits)
        store = cache.store
        assert isinstance(store, HostStore)
        if numbers[0] % 10_000 == 9000:  # reads all there is
            assert all(each.problem is None for each in store.verify())
        store.gc()
        assert not [name for name in files_below(folder) if name.startswith(("staging", "trash"))]
        assert content(numbers[0]) == expected(numbers[0]), "and it is written again"
    return len(hits)
