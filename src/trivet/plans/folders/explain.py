"""What a guarded command would find, and why it would find nothing: looked up, nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from trivet.cache import Artifact, Cache, Failed, Hit, Miss
from trivet.errors import CorruptEntry, TrivetError
from trivet.events import MissReason
from trivet.keys import Key
from trivet.plans.folders.fingerprint import SPACE, present
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.interpreter import Interpreter
from trivet.plans.folders.session import GuardedRun

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

    Kept folders are verified. Raises OSError when an input can't be read.
    """
    from trivet.cache.stored import neighbours

    found = []
    with GuardedRun(
        cache, (), interpreter, environment, command=command, inputs=inputs, salts=salts
    ) as run:
        for framework in frameworks:
            if not present(framework, interpreter):
                continue
            name = framework.name
            try:
                key = run.key_of(framework)
            except (TrivetError, OSError) as error:
                missing = Miss(MissReason.UNAVAILABLE)
                trouble = error.message if isinstance(error, TrivetError) else str(error)
                found.append(FolderLookup(framework=name, key=None, found=missing, trouble=trouble))
                continue
            outcome = _verified(cache.get_files(key))
            nearest = None
            if not isinstance(outcome, Hit):
                kept = (x for x in cache.entries(SPACE) if x.key.get("framework") == name)
                nearest = next(iter(neighbours(kept, key, 1)), None)
            found.append(FolderLookup(framework=name, key=key, found=outcome, nearest=nearest))
    return found


def _verified(found: Hit[Artifact] | Failed | Miss) -> Hit[Artifact] | Failed | Miss:
    if isinstance(found, Hit):
        try:
            found.value.verify()
        except (CorruptEntry, OSError) as error:
            return Miss(MissReason.CORRUPT, str(error))
    return found
