"""Locks between processes that die with their holder."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from tests.support.engine import eventually, finish, start

from trivet.flight import FileLocks

DIGEST = b"\x01" * 32

HOLD = """
import sys
from trivet.flight import FileLocks
from pathlib import Path
lock = FileLocks(Path(sys.argv[1])).try_lock(b"\\x01" * 32)
print("held" if lock else "busy", flush=True)
sys.stdin.read()
"""


def test_one_holder_at_a_time_within_a_process(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    held = locks.try_lock(DIGEST)
    assert held is not None
    assert locks.try_lock(DIGEST) is None
    held.release()
    again = locks.try_lock(DIGEST)
    assert again is not None
    again.release()


def test_release_twice_does_not_release_anothers_lock(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    first = locks.try_lock(DIGEST)
    assert first is not None
    first.release()
    second = locks.try_lock(DIGEST)
    assert second is not None
    first.release()
    assert locks.try_lock(DIGEST) is None
    second.release()


def test_a_killed_holder_frees_its_lock_and_leaves_no_file_behind_after_the_next(
    tmp_path: Path,
) -> None:
    holder = start(HOLD, tmp_path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    locks = FileLocks(tmp_path)
    assert locks.try_lock(DIGEST) is None
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    lock = locks.try_lock(DIGEST)
    assert lock is not None
    lock.release()
    assert os.listdir(tmp_path) == []


def test_a_forked_child_does_not_keep_its_parents_lock_alive(tmp_path: Path) -> None:
    code = """
import os, sys, signal
from pathlib import Path
from trivet.flight import FileLocks
lock = FileLocks(Path(sys.argv[1])).try_lock(b"\\x01" * 32)
if os.fork() == 0:
    print(os.getpid(), flush=True)  # by the child: it has run what follows a fork
    signal.pause()
os.kill(os.getpid(), signal.SIGKILL)
"""
    parent = start(code, tmp_path)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        parent.wait()
        lock = FileLocks(tmp_path).try_lock(DIGEST)
        assert lock is not None, "the child holds the dead parent's lock"
        lock.release()
    finally:
        os.kill(child, signal.SIGKILL)
        parent.communicate()


def test_a_lock_file_unlinked_by_its_holder_is_never_locked_by_two(tmp_path: Path) -> None:
    """Many threads fight for one lock; the counter is only ever changed by one of them."""
    locks = FileLocks(tmp_path)
    inside = 0
    worst = 0
    taken = 0
    guard = threading.Lock()

    def fight() -> None:
        nonlocal inside, worst, taken
        for _ in range(200):
            lock = locks.try_lock(DIGEST)
            if lock is None:
                continue
            with guard:
                inside += 1
                worst = max(worst, inside)
                taken += 1
            with guard:
                inside -= 1
            lock.release()

    threads = [threading.Thread(target=fight) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert taken > 0
    assert worst == 1


def test_locks_work_again_after_their_folder_was_wiped(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "locks"
    locks = FileLocks(folder)
    folder.rmdir()
    lock = locks.try_lock(DIGEST)
    assert lock is not None
    assert locks.try_lock(DIGEST) is None
    lock.release()
    folder.rmdir()
    locks.lock_new(DIGEST).release()
    folder.rmdir()
    folder.parent.rmdir()  # nobody made the cache's folder anew: it is not for a lock to do it
    with pytest.raises(FileNotFoundError):
        locks.try_lock(DIGEST)


def test_an_interrupt_while_a_lock_is_released_does_not_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    lock = FileLocks(tmp_path).try_lock(DIGEST)
    assert lock is not None
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lock.release()
    again = FileLocks(tmp_path).try_lock(DIGEST)
    assert again is not None
    again.release()


def test_probing_does_not_create_a_lock_file(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    try:
        locks.try_lock(DIGEST, create=False)
    except FileNotFoundError:
        pass
    else:
        raise AssertionError("there was no file to lock")
    assert os.listdir(tmp_path) == []


def test_two_processes_never_hold_it_together(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from trivet.flight import FileLocks
locks = FileLocks(Path(sys.argv[1]) / "locks")
got = 0
while got < 100:
    lock = locks.try_lock(b"\\x02" * 32)
    if lock is None:
        continue
    flag = os.open(sys.argv[1] + "/inside", os.O_CREAT | os.O_EXCL)
    os.close(flag)
    os.unlink(sys.argv[1] + "/inside")
    lock.release()
    got += 1
"""
    racing = [start(code, tmp_path) for _ in range(3)]
    for each in racing:
        finish(each)
    eventually(lambda: not (tmp_path / "inside").exists(), "nobody is inside")
