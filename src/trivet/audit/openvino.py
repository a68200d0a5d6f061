"""Probes of OpenVINO's ``CACHE_DIR``, used as its documentation says: ``compile_model(path)``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trivet.audit import judge
from trivet.audit.child import Answer
from trivet.audit.finding import Guarded, NotRun, Own, Probe, Result
from trivet.audit.models import (
    damage_plan,
    dense,
    first_weights,
    flip_bit,
    largest,
    set_long_ago,
)
from trivet.audit.stage import Stage

_FLIPS = 3
_PROCESSES = 4


def _guarded(stage: Stage, model: Path, cache: Path) -> Answer:
    return stage.run("guarded:answer", model=model, cache=cache, backend="OpenVino")


def _other_content(stage: Stage, model: Path, change: Callable[[], object]) -> Result:
    """The cache is filled, ``change`` gives the model other weights, and it is loaded again."""
    folder, cache = stage.folder("own"), stage.folder("cache")
    for _ in range(2):  # the second is a hit, or there is nothing to try
        old = stage.run("openvino:answer", model=model, folder=folder)
    if not old["hit"]:
        raise NotRun("OpenVINO keeps nothing of this model, so there is nothing to try")
    first = _guarded(stage, model, cache)
    change()
    right = stage.run("openvino:plain", model=model).numbers
    judge.require_difference(old.numbers, right)
    own, evidence = judge.served(
        stage.run("openvino:answer", model=model, folder=folder), right, stale=old.numbers
    )
    told, seen = judge.guarded([_guarded(stage, model, cache)], right, ["compiled"])
    if not judge.is_right(first.numbers, old.numbers):
        told, seen = Guarded.WRONG, f"before the change {judge.off(first.numbers, old.numbers)}"
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=seen)


def external_weights(stage: Stage) -> Result:
    """Only the file with the weights is replaced."""
    place = stage.root / "m"
    model = dense(place, 1, external=True)
    other = dense(stage.root / "new", 2, external=True).with_name("weights.bin")
    return _other_content(stage, model, lambda: shutil.copyfile(other, place / "weights.bin"))


def ir_weights(stage: Stage) -> Result:
    """A fine-tuned version replaces only the ``.bin`` of an IR."""
    paths = []
    for seed in (1, 2):
        source, path = dense(stage.root / f"onnx{seed}", seed), stage.folder(f"ir{seed}") / "m.xml"
        stage.run("openvino:convert", model=source, path=path)["path"]
        paths.append(path)
    model, other = paths
    return _other_content(
        stage,
        model,
        lambda: shutil.copyfile(other.with_suffix(".bin"), model.with_suffix(".bin")),
    )


def preserved_time(stage: Stage) -> Result:
    """The model is replaced by one of the same size, and its modification time is preserved."""
    model = dense(stage.root / "m", 1)
    set_long_ago(model.parent)

    def change() -> None:
        dense(model.parent, 2)
        set_long_ago(model.parent)

    return _other_content(stage, model, change)


def flipped_bit(stage: Stage) -> Result:
    """Bit rot in the blob."""
    model, folder, cache = dense(stage.root / "m", 1), stage.folder("own"), stage.folder("cache")
    stage.run("openvino:answer", model=model, folder=folder)
    right = stage.run("openvino:plain", model=model).numbers
    _guarded(stage, model, cache)["source"]
    blob = largest(folder, "*.blob")
    content = blob.read_bytes()
    seen: list[tuple[Own, str]] = []
    for number in range(_FLIPS):
        flip_bit(blob, _place_of_a_weight(content, number))
        seen.append(judge.served(stage.run("openvino:answer", model=model, folder=folder), right))
        blob.write_bytes(content)
    own, evidence = judge.flips(seen)
    damage_plan(cache)
    told, guarded = judge.guarded(
        [_guarded(stage, model, cache) for _ in range(2)], right, ["compiled", "cache"]
    )
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=guarded)


def _place_of_a_weight(content: bytes, number: int) -> int:
    """Where the last byte of some weight lies in the blob, which may begin at any offset."""
    weights = first_weights(1)
    at = (len(weights) * (2 * number + 1) // (2 * _FLIPS)) // 4 * 4
    found = content.find(weights[at : at + 16])
    return (found if found >= 0 else len(content) // 2) + 3


def optimize_size(stage: Stage) -> Result:
    """The cache is told to leave the weights out."""
    model, folder, cache = dense(stage.root / "m", 1), stage.folder("own"), stage.folder("cache")
    right = stage.run("openvino:plain", model=model).numbers
    starts = [
        stage.run("openvino:answer", model=model, folder=folder, mode="OPTIMIZE_SIZE")
        for _ in range(3)
    ]
    own, evidence = judge.served(starts[-1], right)
    hits = sum(bool(each["hit"]) for each in starts)
    size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    if own is Own.NOT_REPRODUCED and not hits:
        own, evidence = Own.WASTEFUL, f"3 starts, no hit, though {size} bytes are kept"
    told, guarded = judge.guarded(
        [_guarded(stage, model, cache) for _ in range(3)], right, ["compiled", "cache", "cache"]
    )
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=guarded)


def many_processes(stage: Stage) -> Result:
    """Several workers start at the same time on an empty cache."""
    model, folder, cache = dense(stage.root / "m", 1), stage.folder("own"), stage.folder("cache")
    right = stage.run("openvino:plain", model=model).numbers
    own = _together(stage, "openvino:answer", model=model, folder=folder)
    compiled = sum(not each["hit"] for each in own)
    guarded = _together(stage, "guarded:answer", model=model, cache=cache, backend="OpenVino")
    told, seen = judge.storm(guarded, right)
    return Result(
        own=Own.WASTEFUL if compiled > 1 else Own.NOT_REPRODUCED,
        own_evidence=f"{_PROCESSES} processes compiled {compiled} times",
        guarded=told,
        guarded_evidence=seen,
    )


def _together(stage: Stage, target: str, **arguments: Any) -> list[Answer]:
    place = stage.folder(f"together-{target.partition(':')[0]}")
    running = [
        stage.start(target, together=place, count=_PROCESSES, **arguments)
        for _ in range(_PROCESSES)
    ]
    return [each.result() for each in running]


PROBES = (
    Probe(
        id="openvino-external-weights",
        framework="openvino",
        title="the file with the weights is replaced, the .onnx file is not",
        run=external_weights,
    ),
    Probe(
        id="openvino-ir-weights",
        framework="openvino",
        title="only the .bin of an IR is replaced",
        run=ir_weights,
    ),
    Probe(
        id="openvino-preserved-time",
        framework="openvino",
        title="other weights under the same path, size and modification time",
        run=preserved_time,
    ),
    Probe(
        id="openvino-flipped-bit",
        framework="openvino",
        title="a bit of the blob is flipped",
        run=flipped_bit,
    ),
    Probe(
        id="openvino-optimize-size",
        framework="openvino",
        title="the cache is told to leave the weights out",
        run=optimize_size,
    ),
    Probe(
        id="openvino-many-processes",
        framework="openvino",
        title="four processes start on an empty cache",
        run=many_processes,
    ),
)
