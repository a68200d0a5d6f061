"""Replacing what is kept by more, without losing what others have added meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

from trivet.cache import Artifact, ArtifactLease, Cache, Hit
from trivet.cache.shared_files import SharedFiles
from trivet.errors import CorruptEntry
from trivet.keys import Key

Copy: TypeAlias = Callable[[Path, Callable[[str], bool]], None]
"""Copies the files whose names are accepted into a folder, in the place of what is there."""

PATIENCE = 60.0  # seconds for others that add to the same
_TRIES = 5  # between hosts; one of those that get into each other's way always comes through


def grow(
    cache: Cache,
    key: Key,
    update: Key,
    fill: Callable[[Path, list[Copy]], bool],
    until: float,
    *,
    tags: tuple[str, ...] = (),
    group: str = "",
) -> bool:
    """Replace the artifact under ``key``, on this host and for all hosts; False if ``fill`` says so
    or others kept this process waiting.

    It is replaced, not removed and made again: who starts meanwhile finds the old one. Within a
    host one does so at a time, by a lease under ``update``; across hosts, whoever finds that
    another one was faster reads what that one wrote, and does it again.

    ``fill`` is given an empty folder and what copies into it from what there is, this host's first.
    It may be called several times.

    After ``until``, by the cache's clock, nobody is waited for and nothing done again: what another
    run adds on this host at that moment may be lost, and is made again.
    """
    for _ in range(_TRIES):
        left = until - cache.clock.monotonic()
        held = cache.acquire_files(update, tags=tags, wait=max(0.0, min(left, PATIENCE)))
        if not isinstance(held, ArtifactLease):
            continue  # another thread of this process was at it, and is done
        with held:
            theirs = cache.files_of_all(key)
            if not fill(held.staging, list(_copies(cache, key, theirs))):
                return False
            held.commit(key=key, group=group, replaces=theirs)
        if theirs is None or not theirs.whole or not held.overtaken or left <= 0:
            return True
    return isinstance(held, ArtifactLease)


def _copies(cache: Cache, key: Key, theirs: SharedFiles | None) -> Iterator[Copy]:
    here = cache.get_files(key)
    if isinstance(here, Hit):
        yield partial(_copy_here, cache, here.value)
    if theirs is not None:
        yield theirs.copy_to


def _copy_here(cache: Cache, stored: Artifact, target: Path, only: Callable[[str], bool]) -> None:
    try:
        stored.copy_to(target, only)
    except CorruptEntry as error:
        cache.quarantine_files(stored, error.message)
