"""What compilers' processes do wrong: ``main`` acts as the job says."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import msgspec

from trivet.errors import BackendError, MissingExtra
from trivet.plans.backends.child import serve


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """``how`` to behave; each run leaves a line in the file ``log``."""

    how: str
    log: str = ""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the process saw of itself."""

    folder: str = ""
    temporary: str = ""
    hash_seed: str = ""
    runs: int = 0


def main() -> None:
    serve(Act, _act)


def _act(act: Act) -> Seen:
    runs = 0
    if act.log:
        with open(act.log, "a+") as log:
            log.write("run\n")
            log.seek(0)
            runs = len(log.readlines())
    match act.how:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "crash once" if runs == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        case "memory":
            raise MemoryError
        case "LLVM memory":
            print("LLVM ERROR: out of memory", file=sys.stderr, flush=True)
            os.abort()
        case "disk":
            raise OSError(28, "No space left on device")
        case "refuse":
            print("model.mlir:1:1: error: no such operator", file=sys.stderr, flush=True)
            print("note: a very long program", file=sys.stderr, flush=True)
            raise BackendError("can't compile")
        case "missing":
            raise MissingExtra("onnx is not installed", hint="pip install 'trivet[iree]'")
        case "exit":
            os._exit(3)
        case "chatter":
            os.write(1, b"progress on standard output\n")
            print("more")
    return Seen(
        folder=os.getcwd(),
        temporary=os.environ["TMPDIR"],
        hash_seed=str(sys.flags.hash_randomization),
        runs=runs or len(Path(act.log).read_text().splitlines()) if act.log else 0,
    )
