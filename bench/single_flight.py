"""Many ask at once for what nobody has: how often it is computed, who hangs, who suffers for whom.

One cell is a scope (threads, tasks, processes, two hosts with a Valkey) and what happens to the
leader, who computes: it ends well, raises, is cancelled (interrupted, in threads and processes),
its process is killed, or it forks a child that asks, too. Each cell runs in processes of its own,
which are killed at a deadline. All sides get the same: the leader's computation lasts until the
others have had a second to ask.

An error that the function itself raised counts for nobody's victim; a cancellation that reaches
somebody else does.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from flight_peers import PROCESSES, TASKS, THREADS
from harness import arguments, report
from tests.support.flights import FATES, SCOPES, Cell, Outcome, play
from tests.support.servers import Valkey

_CALLERS = {"threads": 16, "tasks": 16, "processes": 6, "hosts": 6}
_PATIENCE, _DEADLINE = 1.0, 6.0
_LEASE_SECONDS = 30.0  # the default: the next host takes over when the killed one's lease is over


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__ or "").parse_args()
    here = str(Path(__file__).parent)
    folder = Path(tempfile.mkdtemp(prefix="trivet-bench-"))
    server = Valkey(folder)
    server.start()
    ours = [sys.executable, "-m", "tests.support.flight_of_memo"]
    rows: list[dict[str, object]] = []
    try:
        for scope in SCOPES:
            sides = {"trivet": ours}
            for peer in _peers(scope):
                sides[peer] = [sys.executable, f"{here}/flight_peers.py", peer]
            for side, program in sides.items():
                cells = {fate: _text(_cell(scope, fate, side, program, server)) for fate in FATES}
                rows.append({"who": scope, "side": side, **cells})
                print(*rows[-1].values(), sep="; ", file=sys.stderr)
    finally:
        server.kill()
        shutil.rmtree(folder)
    report("single_flight", rows, options.json)


def _peers(scope: str) -> list[str]:
    if scope == "tasks":
        return list(TASKS)
    if scope == "threads":
        return list(THREADS)
    return list(PROCESSES) if scope == "processes" else []


def _cell(scope: str, fate: str, side: str, program: list[str], server: Valkey) -> Outcome | None:
    if fate == "killed" and side != "trivet" and side not in PROCESSES:
        return None  # what it had is gone with its process
    deadline = _DEADLINE
    if scope == "hosts":
        database = server.url.removesuffix("0") + str(FATES.index(fate))
        program = [*program, database, str(_LEASE_SECONDS)]
        deadline += _LEASE_SECONDS
    with tempfile.TemporaryDirectory(prefix="trivet-bench-") as folder:
        return play(
            Cell(scope, fate), program, Path(folder), callers=_CALLERS[scope],
            patience=_PATIENCE, deadline=deadline,
        )  # fmt: skip


def _text(outcome: Outcome | None) -> str:
    """How often it was computed, and what went wrong."""
    if outcome is None:
        return "-"
    text = f"{outcome.calls}"
    if outcome.victims:
        text += f", {outcome.victims} victims"
    if outcome.hung:
        text += f", {outcome.hung} HUNG"
    return text


if __name__ == "__main__":
    main()
