"""Compilers in a process of their own, which can be killed and whose crash is an error.

The caller's side is `run_child`, the other is `serve`. A job and its result are structs; they cross
as JSON, and arrays cross as files in a scratch folder.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from trivet.errors import BackendError, MissingExtra, ModelError, ShapeError, TrivetError
from trivet.plans.backend import FailureKind
from trivet.plans.lifeline import die_with

if TYPE_CHECKING:
    from trivet.plans.model import Array, Arrays

_Job = TypeVar("_Job", bound=msgspec.Struct)
_Result = TypeVar("_Result", bound=msgspec.Struct)

# The child imports what this process would, and nothing that only its environment or its working
# folder would add.
_BOOT = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "import importlib; importlib.import_module({module!r}).main()"
)
_TEXT_LIMIT = 4000  # characters of diagnostics; compilers print whole programs
_OUT_OF_MEMORY = re.compile(
    r"bad_alloc|out.?of.?memory|can(?:no|')t allocate|resource_exhausted", re.IGNORECASE
)
_MACHINE = re.compile(
    r"no space left|disk quota exceeded|too many open files|input/output error|permission denied"
    r"|resource temporarily unavailable|(?:killed|fatal) signal",
    re.IGNORECASE,
)
# Somebody or the kernel ended it; other signals are of its own making.
_FROM_OUTSIDE = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU, signal.SIGQUIT}
)
_ERRORS: Mapping[str, type[Exception]] = {
    each.__name__: each
    for each in (BackendError, ModelError, ShapeError, MissingExtra, MemoryError)
}


class CompilerDied(TrivetError):
    """The compiler's process was ended by a signal.

    ``transient`` says that the signal came from outside, such as the kernel's when memory runs out.
    """

    def __init__(self, number: int, text: str = "") -> None:
        self.transient = number in _FROM_OUTSIDE
        super().__init__(
            f"the compiler was ended by {signal.Signals(number).name}" + (text and f": {text}"),
            hint="memory may have run out" if number == signal.SIGKILL else None,
        )


def kind_of(error: BaseException) -> FailureKind:
    """`Backend.classify`: what is refused stays refused, what was lacking may come."""
    if isinstance(error, CompilerDied):
        return FailureKind.TRANSIENT if error.transient else FailureKind.DETERMINISTIC
    if not isinstance(error, TrivetError) or isinstance(error, MissingExtra):
        return FailureKind.TRANSIENT
    lacked = _OUT_OF_MEMORY.search(str(error)) or _MACHINE.search(str(error))
    return FailureKind.TRANSIENT if lacked else FailureKind.DETERMINISTIC


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A result, or one of `_ERRORS` with its text, or what the system said."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    text: str = ""
    errno: int = 0


def run_child(
    module: str, job: msgspec.Struct, result: type[_Result], scratch: Path, **environment: str
) -> _Result:
    """Have ``module.main()``, which calls `serve`, do ``job`` in a new process.

    It runs in ``scratch``, which is also its folder for temporary files, with this process's
    environment and what ``environment`` changes in it. It ends when this process does. What it
    made crash is tried once more, for crashes come and go; one that comes twice is the model's.

    Raises `CompilerDied`, and what the child raised: `BackendError`, `ModelError`, `ShapeError`,
    `MissingExtra`, `MemoryError`, `OSError`.
    """
    try:
        return _run_once(module, job, result, scratch, environment)
    except CompilerDied as error:
        if error.transient:
            raise
    return _run_once(module, job, result, scratch, environment)


def _run_once(
    module: str,
    job: msgspec.Struct,
    result: type[_Result],
    scratch: Path,
    environment: Mapping[str, str],
) -> _Result:
    process = subprocess.Popen(
        command_of(module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch.absolute()), **environment},
        cwd=scratch,
    )
    try:
        answer, said = process.communicate(msgspec.json.encode(job))
    finally:
        process.kill()  # when waiting was interrupted; else it has ended
        process.wait()
    return _read(process.returncode, answer, error_lines(said.decode(errors="replace")), result)


def command_of(module: str) -> list[str]:
    """The command that runs ``module.main()`` in a new process, which imports what this one would.

    Raises `BackendError` where there is no interpreter that could run it.
    """
    if not sys.executable:
        raise BackendError("this process has no Python interpreter that could run the compiler")
    # Absolute, for its working folder may be another.
    paths = [os.path.abspath(each) for each in sys.path]
    return [sys.executable, "-I", "-c", _BOOT.format(module=module), str(os.getpid()), *paths]


def _read(code: int, raw: bytes, said: str, result: type[_Result]) -> _Result:
    if code < 0:
        if _OUT_OF_MEMORY.search(said):
            raise MemoryError(said)
        raise CompilerDied(-code, said)
    try:
        answer = msgspec.json.decode(raw, type=_Answer)
    except msgspec.MsgspecError as error:
        raise OSError(f"the compiler ended with {code} and no answer: {said}") from error
    if not answer.error:
        return msgspec.json.decode(answer.result, type=result)
    text = "\n".join(filter(None, (answer.text, said)))
    shown = text[:_TEXT_LIMIT]
    if answer.error == "OSError" or _MACHINE.search(text):
        raise OSError(answer.errno, shown)
    if _OUT_OF_MEMORY.search(text):
        raise MemoryError(shown)
    raise _ERRORS.get(answer.error, BackendError)(shown)


def error_lines(said: str) -> str:
    """The errors among diagnostics, without the programs that compilers print beside them."""
    lines = [line for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
    return "\n".join(line[:500] for line in errors or lines[-10:])[:_TEXT_LIMIT]


def serve(job: type[_Job], work: Callable[[_Job], msgspec.Struct]) -> None:
    """In the child: read a job from standard input, do it, answer on standard output, and end."""
    # Compiling takes minutes and gigabytes that nobody wants when the caller is gone.
    die_with(int(sys.argv[1]))
    answer = own_output()
    try:
        given = msgspec.json.decode(sys.stdin.buffer.read(), type=job)
        done = _Answer(result=msgspec.Raw(msgspec.json.encode(work(given))))
    except OSError as error:
        done = _Answer(error="OSError", text=str(error), errno=error.errno or 0)
    except MemoryError as error:
        done = _Answer(error="MemoryError", text=str(error) or "out of memory")
    except TrivetError as error:
        done = _Answer(error=type(error).__name__, text=str(error))
    with os.fdopen(answer, "wb") as out:
        out.write(msgspec.json.encode(done))
    sys.stderr.flush()
    os._exit(0)  # nothing is left to do, and unloading a compiler takes time


def own_output() -> int:
    """In the child: standard output, for this package alone.

    What a compiler prints is a diagnostic, wherever it prints it.
    """
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def save_arrays(path: Path, arrays: Arrays) -> str:
    """Write arrays of plain types to ``path``; returns its absolute form."""
    import numpy as np

    # Any name will do for an array, but not for a keyword argument.
    named = {f"x{name}": each for name, each in arrays.items()}
    np.savez(path, allow_pickle=False, **named)
    return str(path.absolute())


def load_arrays(path: Path) -> dict[str, Array]:
    """What `save_arrays` wrote."""
    import numpy as np

    with np.load(path, allow_pickle=False) as found:
        return {name[1:]: found[name] for name in found.files}
