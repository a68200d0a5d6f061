"""Checks of the folder itself, before anything in it is read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.cli.doctor.section import Section, error, info, warning
from trivet.cli.output import in_bytes
from trivet.errors import StoreError, StoreReadOnly, UnsafeFolder
from trivet.plans.backend import Finding

if TYPE_CHECKING:
    from trivet.cache import Cache

_LEAST_FREE = 1 << 30  # bytes; a plan of an ordinary model should still fit
_THEREFORE = ", so programs work without the folder"


def check_folder(path: Path, layers: Sequence[Path] = ()) -> tuple[Section, Cache | None]:
    """Is there a folder, is it safe, local, writable? Also the open cache, above ``layers``, if it
    can be opened."""
    if not path.is_dir():
        return _section(path, "there is none", _absent(path)), None
    trouble = _network(path)
    if trouble is not None:
        return _section(path, "on a network file system", trouble), None
    cache, findings = _open(path, layers)
    findings += _disk(path)
    writable = os.access(path, os.W_OK)
    if cache is not None and not writable:
        findings.append(
            info("read-only", f"{path} can only be read: what it lacks is compiled at every start")
        )
    free = in_bytes(shutil.disk_usage(path).free)
    how = "can't be used" if cache is None else "private, local" + (", writable" * writable)
    return _section(path, f"{how}, {free} free", *findings), cache


def _section(path: Path, summary: str, *findings: Finding) -> Section:
    return Section(name="folder", summary=f"{path}: {summary}", findings=list(findings))


def _absent(path: Path) -> Finding:
    parent = next(each for each in path.absolute().parents if each.exists())
    if path.exists():
        return error("not-a-folder", f"{path} is not a folder", "name another one by --cache-dir")
    if not os.access(parent, os.W_OK):
        return error(
            "no-folder",
            f"there is no folder {path}, and it can't be made, since {parent} can't be written",
            "make it for this user, or name another one: --cache-dir or TRIVET_CACHE_DIR; "
            "programs pass it to Cache.open",
        )
    return warning(
        "no-folder",
        f"there is no folder {path}: nothing was ever kept there",
        "if a program did run, it used another folder: compare what it passes to Cache.open",
    )


def _network(path: Path) -> Finding | None:
    from trivet.stores.host import network_filesystem

    kind = network_filesystem(path)
    if kind is None:
        return None
    return error(
        "network-file-system",
        f"{path} lies on a network file system ({kind}): locks and maps of the index don't hold "
        "there, so programs work without the folder",
        "use a folder on a local disk",
    )


def _open(path: Path, layers: Sequence[Path]) -> tuple[Cache | None, list[Finding]]:
    from trivet.cache import Cache

    try:
        return Cache.open(path, layers=layers, strict=True), []
    except UnsafeFolder as trouble:
        return None, [error("unsafe-permissions", *_told(trouble))]
    except StoreReadOnly as trouble:
        return None, [error("unwritable", *_told(trouble))]
    except StoreError as trouble:
        return None, [error("unusable", *_told(trouble))]
    except OSError as trouble:
        return None, [error("unusable", f"{trouble}{_THEREFORE}", "see whether the disk is sound")]


def _told(trouble: StoreError) -> tuple[str, str]:
    """Message and hint."""
    return f"{trouble.message}{_THEREFORE}", trouble.hint or "name another folder"


def _disk(path: Path) -> list[Finding]:
    usage = shutil.disk_usage(path)
    if usage.free >= _LEAST_FREE:
        return []
    return [
        warning(
            "disk-nearly-full",
            f"{in_bytes(usage.free)} are free on the disk of {path}: new plans may not fit, and "
            "are then made again at every start",
            "free some room; 'trivet gc' removes what is no longer used",
        )
    ]
