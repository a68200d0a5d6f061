"""Memos in forked children: none waits for what only its parent has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.engine import SOURCE

PROGRAM = """
import os, sys, threading
import numpy as np
from trivet import Cache
from trivet.values import memo

with Cache.open(sys.argv[1]) as cache:
    going, go_on = threading.Event(), threading.Event()

    @memo(cache, ignore=["going", "go_on"])
    def total(x: np.ndarray) -> int:
        going.set()
        go_on.wait()
        return int(x.sum())

    large = np.ones(1 << 22, np.uint8)  # hashed by threads
    thread = threading.Thread(target=total, args=(large,))
    thread.start()
    going.wait()
    child = os.fork()
    if child == 0:
        go_on.set()
        os._exit(0 if total(large) == 1 << 22 else 1)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
print("answered")
"""


def test_a_child_that_is_forked_while_a_memo_computes_gets_the_value(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "answered\n", done.stderr
