"""Probes of ONNX Runtime.

It has no compile cache. What its documentation offers is to save the optimised model and to load
that at the next start; whoever does so decides by the file's existence. That is tried here.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from trivet.audit import judge
from trivet.audit.child import Answer
from trivet.audit.finding import Guarded, NotRun, Own, Probe, Result
from trivet.audit.models import convolution, damage_plan, dense, flip_bit, largest
from trivet.audit.stage import Stage

_FLIPS = 3
_SMALLER = 16
_QEMU, _OLDER = "qemu-x86_64", "Nehalem"


def _guarded(stage: Stage, model: Path, cache: Path, **more: Any) -> Answer:
    return stage.run("guarded:answer", model=model, cache=cache, backend="OnnxRuntime", **more)


def other_weights(stage: Stage) -> Result:
    """The model is replaced by a fine-tuned version; the saved one stays."""
    model, saved = dense(stage.root / "m", 1), stage.folder("saved") / "model.onnx"
    cache = stage.folder("cache")
    old = stage.run("onnxruntime:answer", model=model, saved=saved).numbers
    first = _guarded(stage, model, cache)
    dense(stage.root / "m", 2)
    right = stage.run("onnxruntime:plain", model=model).numbers
    judge.require_difference(old, right)
    own, evidence = judge.served(
        stage.run("onnxruntime:answer", model=model, saved=saved), right, stale=old
    )
    told, seen = judge.guarded([_guarded(stage, model, cache)], right, ["compiled"])
    if not judge.is_right(first.numbers, old):
        told, seen = Guarded.WRONG, judge.off(first.numbers, old)
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=seen)


def flipped_bit(stage: Stage) -> Result:
    """Bit rot in the saved weights."""
    model, saved = dense(stage.root / "m", 1), stage.folder("saved") / "model.onnx"
    cache = stage.folder("cache")
    stage.run("onnxruntime:answer", model=model, saved=saved)["hit"]
    right = stage.run("onnxruntime:plain", model=model).numbers
    _guarded(stage, model, cache)["source"]
    weights = largest(saved.parent, "*.bin")
    size = weights.stat().st_size
    seen: list[tuple[Own, str]] = []
    for number in range(_FLIPS):
        position = (size * (2 * number + 1) // (2 * _FLIPS)) // 4 * 4 + 3
        flip_bit(weights, position)
        seen.append(judge.served(stage.run("onnxruntime:answer", model=model, saved=saved), right))
        flip_bit(weights, position)
    own, evidence = judge.flips(seen)
    damage_plan(cache)
    told, guarded = judge.guarded(
        [_guarded(stage, model, cache) for _ in range(2)], right, ["compiled", "cache"]
    )
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=guarded)


def cut_file(stage: Stage) -> Result:
    """The process that saved the model was killed halfway."""
    model, saved = dense(stage.root / "m", 1), stage.folder("saved") / "model.onnx"
    cache = stage.folder("cache")
    stage.run("onnxruntime:answer", model=model, saved=saved)["hit"]
    right = stage.run("onnxruntime:plain", model=model).numbers
    _guarded(stage, model, cache)["source"]
    for each in (largest(saved.parent), largest(cache / "artifacts")):
        each.chmod(0o600)
        each.write_bytes(each.read_bytes()[: each.stat().st_size // 2])
    starts = [stage.run("onnxruntime:answer", model=model, saved=saved) for _ in range(2)]
    if all(each.error for each in starts):
        own, evidence = Own.NOT_HEALED, f"every start fails: {starts[-1].error}"
    else:
        own, evidence = judge.served(starts[-1], right)
    told, guarded = judge.guarded(
        [_guarded(stage, model, cache) for _ in range(2)], right, ["compiled", "cache"]
    )
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=guarded)


def saved_under_a_server(stage: Stage) -> Result:
    """A smaller model is saved over the file that a server has mapped."""
    model, saved = dense(stage.root / "m", 1), stage.folder("saved") / "model.onnx"
    smaller, cache = dense(stage.root / "smaller", 2, width=_SMALLER), stage.folder("cache")
    right = stage.run("onnxruntime:plain", model=model).numbers
    stage.run("onnxruntime:save", model=model, saved=saved)["y"]
    signs: dict[str, Any] = {each: stage.root / each for each in ("ready", "go")}
    server = stage.start("onnxruntime:serve", saved=saved, **signs)
    server.wait_for(signs["ready"])
    stage.run("onnxruntime:save", model=smaller, saved=saved)["y"]
    signs["go"].touch()
    own, evidence = judge.served(server.result(), right)
    for each in signs.values():
        each.unlink()
    guard = stage.start("guarded:serve", model=model, cache=cache, **signs)
    guard.wait_for(signs["ready"])
    shutil.copyfile(smaller, model)
    _guarded(stage, model, cache)["source"]
    signs["go"].touch()
    told, seen = judge.guarded([guard.result()], right, ["compiled"])
    return Result(
        own=own,
        own_evidence=f"the server: {evidence}",
        guarded=told,
        guarded_evidence=f"the server goes on: {seen}",
    )


def unknown_key(stage: Stage) -> Result:
    """The session is given options that are said to switch a compile cache on."""
    model, cache = dense(stage.root / "m", 1), stage.folder("cache")
    right = stage.run("onnxruntime:plain", model=model).numbers
    found = stage.run("onnxruntime:unknown_key", model=model, folder=stage.folder("own"))
    if found.error:
        own, evidence = Own.NOT_REPRODUCED, f"refused: {found.error}"
    elif found["files"]:
        own, evidence = Own.NOT_REPRODUCED, f"it kept {found['files']} files"
    else:
        own, evidence = Own.WASTEFUL, "taken without a word; nothing was kept"
    told, guarded = judge.guarded(
        [_guarded(stage, model, cache) for _ in range(2)], right, ["compiled", "cache"]
    )
    lint = stage.run("guarded:lint", options={"session.compile_allow_cache": "1"})
    if "session.compile_allow_cache" not in str(lint["findings"]):
        told, guarded = Guarded.NO_BETTER, "the option is no finding"
    return Result(
        own=own,
        own_evidence=evidence,
        guarded=told,
        guarded_evidence=f"the option is a finding; {guarded}",
    )


def other_processor(stage: Stage) -> Result:
    """The saved model is loaded on an older processor, which is emulated."""
    qemu = shutil.which(_QEMU)
    if qemu is None:
        raise NotRun(f"another processor needs {_QEMU}, Debian's package qemu-user")
    older = (qemu, "-cpu", _OLDER)
    model, saved = convolution(stage.root / "m", 1), stage.folder("saved") / "model.onnx"
    cache = stage.folder("cache")
    stage.run("onnxruntime:answer", model=model, saved=saved)["hit"]
    here = _guarded(stage, model, cache)
    right = stage.run("onnxruntime:plain", model=model, prefix=older).numbers
    own, evidence = judge.served(
        stage.run("onnxruntime:answer", model=model, saved=saved, prefix=older), right
    )
    told, guarded = judge.guarded(
        [here, _guarded(stage, model, cache, prefix=older)], right, ["compiled", "compiled"]
    )
    return Result(own=own, own_evidence=evidence, guarded=told, guarded_evidence=guarded)


PROBES = (
    Probe(
        id="onnxruntime-other-weights",
        framework="onnxruntime",
        title="the model has other weights than when it was saved",
        run=other_weights,
    ),
    Probe(
        id="onnxruntime-flipped-bit",
        framework="onnxruntime",
        title="a bit of the saved weights is flipped",
        run=flipped_bit,
    ),
    Probe(
        id="onnxruntime-cut-file",
        framework="onnxruntime",
        title="the saved file is cut off",
        run=cut_file,
    ),
    Probe(
        id="onnxruntime-saved-under-a-server",
        framework="onnxruntime",
        title="a smaller model is saved over the file that a server has mapped",
        run=saved_under_a_server,
    ),
    Probe(
        id="onnxruntime-unknown-option",
        framework="onnxruntime",
        title="options that don't exist switch a cache on",
        run=unknown_key,
    ),
    Probe(
        id="onnxruntime-other-processor",
        framework="onnxruntime",
        title="the saved model is loaded on an older processor",
        run=other_processor,
    ),
)
