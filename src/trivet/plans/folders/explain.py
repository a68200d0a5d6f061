"""What a guarded command would find, and why it would find nothing: looked up, nothing is run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trivet.cache import Artifact, Cache, Failed, Hit, Miss
from trivet.errors import CorruptEntry, TrivetError
from trivet.events import MissReason
from trivet.keys import Key
from trivet.plans.folders.dependencies import Basis, Dependencies
from trivet.plans.folders.fingerprint import SPACE, digest_inputs, present
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.interpreter import Interpreter, arguments_of
from trivet.plans.memo import CacheMemo

if TYPE_CHECKING:
    from trivet.cache import Neighbour


class FolderLookup(msgspec.Struct, frozen=True, kw_only=True):
    """One framework's folder.

    ``key`` is None where it can't be told, and ``trouble`` says why: the framework would be left
    alone. ``nearest`` is the kept folder of the framework whose key differs in the fewest fields;
    None for a hit, and where none is kept.
    """

    framework: str
    key: Key | None
    found: Hit[Artifact] | Failed | Miss
    nearest: Neighbour | None = None
    trouble: str = ""


def explain(
    cache: Cache,
    frameworks: Sequence[CacheFolder],
    interpreter: Interpreter,
    environment: Mapping[str, str],
    *,
    command: Sequence[str],
    inputs: Sequence[Path] = (),
    salts: Mapping[str, str] | None = None,
) -> list[FolderLookup]:
    """What `GuardedRun` with the same arguments would find for each framework that is there.

    For a process that was started with ``environment`` and has loaded nothing of its own. Kept
    folders are verified. Raises OSError when an input can't be read.
    """
    memo = CacheMemo(cache)
    dependencies = Dependencies(
        cache,
        memo,
        command=tuple(map(os.fsencode, command)),
        inputs=digest_inputs(list(inputs), memo),
        salts=dict(salts or {}),
        started=time.time_ns(),
        cwd=os.getcwd(),
    )
    found = []
    for framework in frameworks:
        if not present(framework, interpreter):
            continue
        name = framework.name
        try:
            basis = dependencies.basis(
                framework, interpreter, environment, (), arguments_of(command)
            )
            key = dependencies.key(basis)
        except (TrivetError, OSError) as error:
            missing = Miss(MissReason.UNAVAILABLE)
            trouble = error.message if isinstance(error, TrivetError) else str(error)
            found.append(FolderLookup(framework=name, key=None, found=missing, trouble=trouble))
            continue
        outcome = _verified(cache.get_files(key))
        nearest = None
        if not isinstance(outcome, Hit):
            nearest = _nearest(cache, dependencies, basis, framework, key)
        found.append(FolderLookup(framework=name, key=key, found=outcome, nearest=nearest))
    return found


def _nearest(
    cache: Cache, dependencies: Dependencies, basis: Basis, framework: CacheFolder, key: Key
) -> Neighbour | None:
    """The kept folder that differs in the fewest fields.

    What a program takes operators from is learnt when it runs. Where this one has not run under
    these conditions, it may turn out to take them from the same files as that which filled the
    folder: those are compared as they are here, not as unknown.
    """
    from trivet.cache.stored import neighbours

    best: list[Neighbour] = []
    for entry in cache.entries(SPACE):
        if entry.key.get("framework") != framework.name:
            continue
        taken = entry.key.get("implementations")
        names = sorted({*basis.names, *(taken if isinstance(taken, Mapping) else ())})
        try:
            mine = dependencies.key(msgspec.structs.replace(basis, names=names))
        except (TrivetError, OSError):
            mine = key
        best += neighbours([entry], mine if mine != entry.key else key, 1)
    return min(best, key=lambda x: (len(x.differences), -x.entry.descriptor.created), default=None)


def _verified(found: Hit[Artifact] | Failed | Miss) -> Hit[Artifact] | Failed | Miss:
    if isinstance(found, Hit):
        try:
            found.value.verify()
        except (CorruptEntry, OSError) as error:
            return Miss(MissReason.CORRUPT, str(error))
    return found
