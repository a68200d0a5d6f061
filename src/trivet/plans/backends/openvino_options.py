"""The options of the OpenVINO backend: what is refused, what is bypassed, what is applied."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from trivet.errors import BackendError
from trivet.plans.backend import Finding, Severity

Option: TypeAlias = str | int | float | bool

# OpenVINO's own cache is keyed by path, time and size and written in place. A plan needs none.
_BYPASSED = {
    "CACHE_DIR": "plans are kept by content here; OpenVINO's own cache is keyed by path, "
    "modification time and size, and is not used",
    "CACHE_MODE": "it only concerns OpenVINO's own cache, where OPTIMIZE_SIZE never hits on CPU",
}
_REFUSED = {
    "WEIGHTS_PATH": "a plan must hold its weights: a file beside it can change unnoticed",
    "ENABLE_WEIGHTLESS": "a plan must hold its weights: a file beside it can change unnoticed",
    "CACHE_ENCRYPTION_CALLBACKS": "a function has no identity that a key could hold",
    "DEVICE_ID": "plans are kept for the CPU only",
}
# Properties of the library rather than of a device.
CORE_PROPERTIES = frozenset({"ENABLE_MMAP", "FORCE_TBB_TERMINATE"})

_HINTS = {"latency": "LATENCY", "throughput": "THROUGHPUT"}
_PRECISIONS = ("f32", "bf16", "f16")
_WORDS = {"YES": True, "TRUE": True, "NO": False, "FALSE": False}
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def check_options(
    *,
    device: str,
    threads: int | None,
    streams: int | None,
    hint: str | None,
    precision: str | None,
    options: Mapping[str, Option],
) -> dict[str, Option]:
    """All properties as they will be applied, sorted by name.

    Raises `BackendError` for what can't be honoured. Whether the installed library knows a
    property is only seen once it is loaded; see `unknown_properties`.
    """
    if device != "CPU":
        raise BackendError(
            f"device {device!r}: plans are kept for 'CPU' only",
            hint="a plan for a GPU or an NPU depends on its driver, which this version does not "
            "put into keys",
        )
    applied: dict[str, Option] = {
        **_count("INFERENCE_NUM_THREADS", "threads", threads),
        **_count("NUM_STREAMS", "streams", streams),
    }
    if hint is not None:
        if hint not in _HINTS:
            raise BackendError(f"hint is one of {sorted(_HINTS)}, got {hint!r}")
        applied["PERFORMANCE_HINT"] = _HINTS[hint]
    if precision is not None:
        if precision not in _PRECISIONS:
            raise BackendError(f"precision is one of {list(_PRECISIONS)}, got {precision!r}")
        applied["INFERENCE_PRECISION_HINT"] = precision
    for name, value in options.items():
        _check_option(name, value)
        if name in applied:
            raise BackendError(f"{name} is given twice: by its own argument and among the options")
        if name not in _BYPASSED:
            applied[name] = _typed(value)
    return dict(sorted(applied.items()))


def _typed(value: Option) -> Option:
    """One form for what OpenVINO takes in several: ``"2"`` is 2, ``"YES"`` is True."""
    if not isinstance(value, str):
        return value
    if value.isdecimal() and value.isascii():
        return int(value)
    return _WORDS.get(value.upper(), value)


def _count(name: str, argument: str, value: int | None) -> dict[str, Option]:
    if value is None:
        return {}
    if type(value) is not int or value < 1:
        raise BackendError(f"{argument} is a number from 1, got {value!r}")
    return {name: value}


def _check_option(name: object, value: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BackendError(f"OpenVINO's properties have names like NUM_STREAMS, got {name!r}")
    if name in _REFUSED:
        raise BackendError(f"{name} can't be set: {_REFUSED[name]}")
    if type(value) not in (str, int, float, bool):
        raise BackendError(
            f"{name} is a string, a number or a bool, got {type(value).__qualname__}"
        )


def check_extensions(extensions: Sequence[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """Absolute paths of the extension libraries, in the order in which they are registered."""
    if isinstance(extensions, str | os.PathLike):
        raise BackendError("extensions is a sequence of paths, got a single one")
    paths = tuple(Path(each).absolute() for each in extensions)
    for path in paths:
        if not path.is_file():
            raise BackendError(f"extension library {path} does not exist")
    return paths


def unknown_properties(names: Iterable[str], supported: Iterable[str]) -> list[str]:
    """Those of ``names`` that the loaded library does not know."""
    return sorted(set(names) - set(supported) - CORE_PROPERTIES)


def lint_options(
    given: Mapping[str, Option], applied: Mapping[str, Option], libraries: Sequence[Path]
) -> list[Finding]:
    """What is odd about the options; ``libraries`` are searched for the names of properties."""
    findings = [
        Finding(
            severity=Severity.WARNING,
            code="option-bypassed",
            message=f"{name} is not applied: {reason}",
            hint="leave it out",
        )
        for name, reason in _BYPASSED.items()
        if name in given
    ]
    findings += [
        Finding(
            severity=Severity.ERROR,
            code="unknown-property",
            message=f"{name} does not occur in the installed OpenVINO; it would be refused",
            hint="check the spelling against the properties of the installed version",
        )
        for name in _absent(applied, libraries)
    ]
    if str(applied.get("ENABLE_MMAP", True)).upper() in ("FALSE", "NO", "0"):
        findings.append(
            Finding(
                severity=Severity.WARNING,
                code="mmap-off",
                message="ENABLE_MMAP is off, so compiling copies the weights into memory first; "
                "loading a kept plan maps it either way",
                hint="leave it out",
            )
        )
    return findings


def _absent(names: Iterable[str], libraries: Sequence[Path]) -> list[str]:
    """Names that stand in none of the libraries as a string of their own."""
    left = {name: b"\0" + name.encode() + b"\0" for name in names}
    for path in libraries if left else ():
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            left = {name: needle for name, needle in left.items() if text.find(needle) < 0}
    return sorted(left) if libraries else []
