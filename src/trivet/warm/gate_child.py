"""One model of a plan file, tested in a process that may crash or hang: the gate's other side."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from trivet.cache import Cache
from trivet.cache.place import user_folder
from trivet.errors import StoreUnavailable, TrivetError
from trivet.plans.backends.child import own_output
from trivet.plans.compare import says_nothing
from trivet.plans.examine import Against, Examined, Reference
from trivet.plans.lifeline import die_with
from trivet.plans.outcome import CanaryMode, Loaded, OnFailure, Source
from trivet.plans.plans import Plans
from trivet.plans.report import sums
from trivet.warm.plain import plain
from trivet.warm.planfile import ModelEntry, Wanted, wanted
from trivet.warm.report import FAILED, UNVERIFIED, VariantReport

if TYPE_CHECKING:
    from trivet.plans.model import Arrays
    from trivet.plans.shapes import Variant

_WRONG = {
    Against.UNCOMPILED: "the plan and the uncompiled model give different answers",
    Against.PREVIOUS: "it answers differently",
    Against.REFERENCE: "it does not give the answers of the reference",
}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One model.

    Attributes:
        entry, folder, release, name: what the plan file says, and where it lies.
        cache: the cache folder; empty for the user's own.
        shared, layers: as for `Cache.open`.
        again: variants that must be found, since another process has just made them; None for the
            whole examination.
    """

    entry: ModelEntry
    folder: str
    release: str
    name: str
    cache: str
    shared: list[str] = []
    layers: list[str] = []
    again: list[str] | None = None


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The model could be read, and these are its variants."""

    variants: list[str]


class Reported(msgspec.Struct, frozen=True, tag="reported"):
    """One variant was tested."""

    variant: VariantReport


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Nothing can be tested."""

    error: str
    hint: str


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """All is told. ``memory`` is the most that was resident, in bytes."""

    memory: int


Told: TypeAlias = Opened | Reported | Refused | Finished


def main() -> None:
    """Read a `Job` from standard input, and tell what comes of it on standard output."""
    die_with(int(sys.argv[1]))
    with os.fdopen(own_output(), "wb") as out:
        # JSON has no infinity, with which masks are padded.
        job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
        for each in _work(job):
            out.write(msgspec.json.encode(each) + b"\n")
            out.flush()
    sys.stderr.flush()
    os._exit(0)  # nothing is left to do, and unloading a framework takes time


def _work(job: Job) -> Iterator[Told]:
    try:
        with _open(job) as cache:
            what = wanted(job.entry, Path(job.folder), job.release, job.name)
            plans = Plans(
                cache,
                what.backend,
                release=what.release,
                on_failure=OnFailure.REFUSE,
                canary=CanaryMode.ALWAYS,
                key_limit=1 << 30,
            )
            if job.again is None:
                yield from _examine_all(plans, what, job)
            else:
                yield from _find_all(plans, what, job.again)
    except (TrivetError, OSError) as error:
        yield Refused(*_words(error))
        return
    # Some compilers run in children of their own.
    of = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    yield Finished(max(resource.getrusage(each).ru_maxrss for each in of) << 10)


def _open(job: Job) -> Cache:
    folder = job.cache or user_folder()
    try:
        return Cache.open(folder, shared=job.shared or None, layers=job.layers, strict=True)
    except ValueError as error:
        raise StoreUnavailable(
            f"--shared: {error}", hint="such as s3://bucket/prefix or valkey://host:6379/0"
        ) from error


def _examine_all(plans: Plans, what: Wanted, job: Job) -> Iterator[Told]:
    reference = _reference(job)
    examination = plans.examination(what.path, what.shapes)
    variants = examination.variants()
    yield Opened([str(each) for each in variants])
    for variant in variants:
        try:
            found = examination.examine(variant, reference, previous=job.entry.previous)
        except (TrivetError, MemoryError, OSError) as error:
            told = VariantReport(shapes=str(variant), result=FAILED)
            message, hint = _words(error)
            yield Reported(msgspec.structs.replace(told, error=message, hint=hint))
        else:
            told = _examined(variant, found)
            if told.nondeterministic and told.passed and not job.entry.nondeterministic:
                told = _unverified(told, found)
            yield Reported(told)


def _unverified(told: VariantReport, found: Examined) -> VariantReport:
    """A plan whose answers nothing could be held against, unless a reference was."""
    if any(each.against is Against.REFERENCE for each in found.checks):
        return told
    return msgspec.structs.replace(
        told,
        result=UNVERIFIED,
        error="it can't be verified: its answers differ from run to run",
        hint="seed the model, or name a reference; where they should differ, say so in the plan "
        "file: nondeterministic = true",
    )


def _examined(variant: Variant, found: Examined) -> VariantReport:
    wrong = "; ".join(f"{_WRONG[each.against]}: {each.detail}" for each in found.wrong)
    return VariantReport(
        shapes=str(variant),
        result=FAILED if wrong else str(found.source),
        nondeterministic=found.varies,
        reason=found.reason,
        error=wrong or found.error,
        key=found.key.digest.hex(),
        fields=plain({name: found.key[name] for name in found.key}),
        checks=list(found.checks),
        phases=sums(found.phases),
        size=found.size,
    )


def _find_all(plans: Plans, what: Wanted, again: list[str]) -> Iterator[Told]:
    """A process that starts now must find what another one made."""
    opened = plans.open(what.path, what.shapes)
    variants = [each for each in opened.variants() if str(each) in again]
    yield Opened([str(each) for each in variants])
    for variant in variants:
        told = VariantReport(shapes=str(variant), result=FAILED)
        try:
            loaded = plans.open(what.path, what.shapes).prepare(variant)[0]
        except (TrivetError, MemoryError, OSError) as error:
            message, hint = _words(error)
            yield Reported(msgspec.structs.replace(told, error=message, hint=hint))
        else:
            yield Reported(_found_again(told, loaded))


def _found_again(told: VariantReport, loaded: Loaded) -> VariantReport:
    if loaded.source is Source.CACHE:
        return msgspec.structs.replace(told, result=str(loaded.source), key=loaded.key.digest.hex())
    return msgspec.structs.replace(told, reason=loaded.reason, key=loaded.key.digest.hex())


def _reference(job: Job) -> Reference | None:
    """The answers that the plan file names. Raises `TrivetError` when they can't be read."""
    files = job.entry.reference
    if files is None:
        return None
    folder = Path(job.folder)
    outputs = _arrays(folder / files.outputs)
    if says_nothing(outputs):
        raise TrivetError(
            f"the reference {folder / files.outputs} holds no answers",
            hint="'trivet run MODEL --output FILE.npz' writes some",
        )
    return Reference(
        inputs=_arrays(folder / files.inputs) if files.inputs is not None else None,
        outputs=outputs,
        tolerance=files.tolerance,
    )


def _arrays(path: Path) -> Arrays:
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise TrivetError(
            f"the reference {path} can't be read: {error}",
            hint="'trivet run MODEL --output FILE.npz' writes one",
        ) from error


def _words(error: BaseException) -> tuple[str, str]:
    """Message and hint."""
    if isinstance(error, TrivetError):
        return error.message, error.hint or ""
    return f"{type(error).__name__}: {error}", ""
