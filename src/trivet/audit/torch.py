"""Probes of ``torch.compile``: the cache folder of Inductor, with its default settings
but for the number of compilers.

The right numbers are those that PyTorch gives without a compiler, in the same process.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trivet.audit import judge
from trivet.audit.child import Answer
from trivet.audit.finding import Guarded, NotRun, Own, Probe, Result
from trivet.audit.stage import Stage

_OPERATORS = """
import torch

@torch.library.custom_op("audit::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.DTYPE) * 2

@scale.register_fake
def _(x):
    return torch.empty_like(x, dtype=torch.DTYPE)
"""
# A pool of processes that compile in parallel costs more than these programs.
_ALONE = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
# Root may write everywhere, as most programs in containers may; a read-only folder is one for the
# program only without that right. The number of CAP_DAC_OVERRIDE is 1, of PR_CAPBSET_DROP 24.
_WITHOUT_OVERRIDE = (
    sys.executable,
    "-c",
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])",
)


def _own(
    stage: Stage,
    folder: Path,
    target: str = "torch:answer",
    *,
    environment: Mapping[str, str] | None = None,
    **more: Any,
) -> Answer:
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(folder), **_ALONE, **(environment or {})}
    return stage.run(target, environment=variables, **more)


def _trivet(
    stage: Stage,
    cache: Path,
    target: str = "torch:answer",
    *,
    environment: Mapping[str, str] | None = None,
    **more: Any,
) -> Answer:
    variables = {**_ALONE, **(environment or {})}
    return stage.run_guarded(cache, target, environment=variables, **more)


def _filled(stage: Stage) -> tuple[Path, Path]:
    """Inductor's folder and Trivet's, each filled by one run of the same program."""
    own = stage.prepared("own", lambda folder: _own(stage, folder)["y"])
    cache = stage.prepared("cache", lambda folder: _trivet(stage, folder)["y"])
    return own, cache


def _served(found: Answer) -> tuple[Own, str]:
    """Judge an answer that should not have come from the cache."""
    if found.error:
        return Own.FAILS, found.error
    hits = f"{found['hits']} hits"
    if not judge.is_right(found.numbers, found["right"]):
        return Own.WRONG, f"{hits}, no error, {judge.off(found.numbers, found['right'])}"
    if found["hits"]:
        return Own.UNVERIFIED, f"{hits}, and here the numbers are right"
    return Own.NOT_REPRODUCED, "compiled again, right numbers"


def _guarded(answers: Sequence[Answer], misses: Sequence[bool]) -> tuple[Guarded, str]:
    """Judge starts under ``trivet exec``, of which some are to compile and others not to."""
    told = []
    verdict = Guarded.RIGHT
    for answer, is_miss in zip(answers, misses, strict=True):
        if answer.error:
            return Guarded.NO_BETTER, answer.error
        told.append("compiled" if answer["misses"] else "hit")
        if not judge.is_right(answer.numbers, answer["right"]):
            return Guarded.WRONG, judge.off(answer.numbers, answer["right"])
        if bool(answer["misses"]) != is_miss:
            verdict = Guarded.NO_BETTER
    return verdict, f"{', then '.join(told)}; right numbers"


def instruction_set(stage: Stage) -> Result:
    """The folder was filled on a processor with wider vectors.

    PyTorch is told to take the narrower ones, as it would by itself on such a processor.
    """
    here = stage.run("torch:capability")["capability"]
    if here in ("DEFAULT", "NO AVX"):
        raise NotRun("this processor has no wider vectors than the default")
    other = "avx2" if here.startswith("AVX512") else "default"
    narrower = {"ATEN_CPU_CAPABILITY": other}
    folder, cache = _filled(stage)
    if not _own(stage, folder)["hits"]:
        raise NotRun("the folder is not even hit where it was filled")
    own, evidence = _served(_own(stage, folder, environment=narrower))
    told, seen = _guarded([_trivet(stage, cache, environment=narrower)], [True])
    return Result(
        own=own,
        own_evidence=f"filled with {here}, read with {other}: {evidence}",
        guarded=told,
        guarded_evidence=seen,
    )


def custom_operator(stage: Stage) -> Result:
    """A new version of a custom operator returns another type."""
    folder, cache = stage.folder("own"), stage.folder("cache")
    operators = stage.folder("program") / "operators.py"

    def write(dtype: str) -> None:
        operators.write_text(_OPERATORS.replace("DTYPE", dtype))

    def guard() -> Answer:
        return _trivet(stage, cache, "torch:custom_operator", operators=operators)

    write("float32")
    _own(stage, folder, "torch:custom_operator", operators=operators)["y"]
    first = guard()
    write("int32")
    own, evidence = _served(_own(stage, folder, "torch:custom_operator", operators=operators))
    told, seen = _guarded([first, guard()], [True, True])
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=seen)


def empty_library(stage: Stage) -> Result:
    """Compiled libraries are empty: the machine went down before they were on disk."""
    folder, cache = _filled(stage)
    for place in (folder, cache / "artifacts"):
        # The kernels; other libraries there are by which PyTorch asks what the processor can do.
        for each in list(place.rglob("*.main.so")) or list(place.rglob("*.so")):
            each.chmod(0o600)
            each.write_bytes(b"")
    starts = [_own(stage, folder) for _ in range(2)]
    own, evidence = _served(starts[-1])
    if all(each.error for each in starts):
        own, evidence = Own.NOT_HEALED, f"every start fails: {evidence}"
    elif own is Own.UNVERIFIED:
        own, evidence = Own.NOT_REPRODUCED, "the libraries were made again"
    told, seen = _guarded([_trivet(stage, cache) for _ in range(2)], [True, False])
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=seen)


def flipped_bit(stage: Stage) -> Result:
    """Entries came to a new host, what was compiled from them did not, and one bit is flipped."""
    folder, cache = _filled(stage)
    for each in folder.iterdir():
        if each.name not in ("fxgraph", "aotautograd"):
            shutil.rmtree(each)
    flipped = _flip_number(folder)
    if not flipped or not _flip_number(cache / "artifacts"):
        raise NotRun("no entry holds the number that the program multiplies by")
    own, evidence = _served(_own(stage, folder))
    if own is Own.UNVERIFIED:
        own = Own.NOT_REPRODUCED
    told, seen = _guarded([_trivet(stage, cache)], [True])
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=seen)


def _flip_number(place: Path) -> int:
    """Make 9.5 of 1.5 in the code that entries hold, which is one bit; in how many files."""
    count = 0
    for each in place.rglob("*"):
        if not each.is_file() or each.suffix == ".so":
            continue
        content = each.read_bytes()
        changed = content.replace(b"(1.5)", b"(9.5)")
        if changed != content:
            each.chmod(0o600)
            each.write_bytes(changed)
            count += 1
    return count


def read_only(stage: Stage) -> Result:
    """The folder holds everything and can't be written, as in an image or on a shared volume."""
    folder, cache = _filled(stage)
    for place in (folder, cache):
        for each in sorted(place.rglob("*"), reverse=True):
            each.chmod(each.stat().st_mode & ~0o222)
        place.chmod(0o555)
    found = _own(stage, folder, prefix=_WITHOUT_OVERRIDE)
    own, evidence = _served(found)
    if own is Own.UNVERIFIED:
        own, evidence = Own.NOT_REPRODUCED, f"{found['hits']} hits, right numbers"
    told, seen = _guarded([_trivet(stage, cache, prefix=_WITHOUT_OVERRIDE)], [False])
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=seen)


PROBES = (
    Probe(
        id="torch-instruction-set",
        framework="torch",
        title="the folder was filled on a processor with wider vectors",
        run=instruction_set,
    ),
    Probe(
        id="torch-custom-operator",
        framework="torch",
        title="a custom operator returns another type than when the folder was filled",
        run=custom_operator,
    ),
    Probe(
        id="torch-flipped-bit",
        framework="torch",
        title="a bit of an entry is flipped",
        run=flipped_bit,
    ),
    Probe(
        id="torch-empty-library",
        framework="torch",
        title="compiled libraries in the folder are empty",
        run=empty_library,
    ),
    Probe(
        id="torch-read-only",
        framework="torch",
        title="the folder holds everything and can't be written",
        run=read_only,
    ),
)
