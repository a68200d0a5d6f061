"""``trivet gate`` with real runtimes: what passes, and everything that must not."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.support import onnx_models
from tests.support.cli import COMMAND, Done, Shell, environment, trivet
from tests.support.engine import eventually
from tests.support.installed import CRASHES, HANGS, as_version, that_does

from trivet.cache import ArtifactLease, Cache, Hit
from trivet.codecs import Arrays
from trivet.errors import ShapeOutside
from trivet.plans.backends import OnnxRuntime
from trivet.plans.plans import Plans
from trivet.plans.shapes import Shapes

TWO = """
release = "7"
[[model]]
path = "net.onnx"
shapes = "x=N{1,8}x16"
[[model]]
path = "net.onnx"
backend = "openvino"
"""


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIVET_CACHE_DIR", raising=False)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path / "cache", capsys)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return onnx_models.save(onnx_models.dynamic_batch(), tmp_path / "net.onnx")


@pytest.fixture
def gate(shell: Shell, model: Path, tmp_path: Path) -> Callable[..., Done]:
    """The gate for a plan file of this content, as JSON."""

    def run(content: str, *options: object) -> Done:
        file = tmp_path / "plan.toml"
        file.write_text(content)
        return shell("gate", file, "--json", *options)

    return run


def one(path: str = "net.onnx", **more: Any) -> str:
    """A ``[[model]]``."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"path": path, **more}.items()]
    return "\n".join(["[[model]]", *lines, ""])


def results(done: Done) -> list[str]:
    return [x["result"] for each in done.json()["targets"] for x in each["variants"]]


def same(variant: dict[str, Any]) -> list[str]:
    """What its answers were found to agree with."""
    return [each["against"] for each in variant["checks"] if each["result"] == "same"]


# -- what passes -----------------------------------------------------------------------------------


def test_a_release_passes_cold_and_warm_with_the_real_command(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(TWO)
    for expected in ("compiled", "cache"):
        done = trivet(tmp_path / "c", "gate", file, "--jobs", 2, "--json")
        assert done.code == 0, done.err
        told = done.json()
        assert told["passed"]
        assert results(done) == [expected] * 3
        for target in told["targets"]:
            assert target["memory"] > 1 << 20
            assert target["summary"]["first run"] > 0
            assert {"canary", "uncompiled"} <= set(same(target["variants"][0]))
    assert [x["shapes"] for x in told["targets"][0]["variants"]] == ["x=1x16", "x=8x16"]
    shown = trivet(tmp_path / "c", "gate", file)
    assert "2 models, 3 variants: passed" in shown.out
    assert "net.onnx on openvino" in shown.out


def test_what_is_optional_may_fail_and_what_is_required_may_not(gate: Callable[..., Done]) -> None:
    done = gate(one() + one("missing.onnx", required=False))
    assert done.code == 0
    missing = done.json()["targets"][1]
    assert (missing["passed"], missing["variants"]) == (False, [])
    assert "there is no model file" in missing["error"]
    assert gate(one() + one("missing.onnx")).code == 1
    assert gate(one("missing.onnx", required=False)).code == 1, "nothing passed at all"


@pytest.mark.parametrize("content", ["model = []", "release = '7'"])
def test_a_gate_that_would_test_nothing_is_wrong_usage(
    content: str, gate: Callable[..., Done], shell: Shell, tmp_path: Path
) -> None:
    done = gate(content)
    assert done.code == 2
    assert "there is no model" in done.err
    assert shell("warm", tmp_path / "plan.toml").code == 2


def test_shapes_that_were_asked_for_and_are_not_in_the_file_are_told(
    gate: Callable[..., Done], shell: Shell, model: Path
) -> None:
    shell("warm", model, "--shapes", "x=N{1,4}x16")
    with Cache.open(shell.cache, strict=True) as cache:
        plan = Plans(cache, OnnxRuntime()).load(model, Shapes("x=N{1,8}x16"))
        with pytest.raises(ShapeOutside):
            plan.run({"x": np.ones((9, 16), np.float32)})
    done = gate(one(shapes="x=N{1,8}x16"))
    assert done.code == 0, "it is no reason to stop a release"
    coverage = done.json()["targets"][0]["coverage"]
    assert (coverage["missing"], coverage["outside"]) == (["x=4x16"], {"x=9x16": 1})
    told = shell("gate", model.with_name("plan.toml")).out
    assert "net.onnx: asked for on this host, not covered: x=4x16, x=9x16" in told


# -- compilers that refuse, crash and hang ---------------------------------------------------------


def test_a_model_that_does_not_compile_fails_and_the_others_are_tested(
    gate: Callable[..., Done], tmp_path: Path
) -> None:
    node = onnx.helper.make_node("Nothing", ["x"], ["y"], domain="nowhere")
    shape = [onnx_models.tensor("x", [2])]
    proto = onnx_models.model(
        [node], shape, [onnx_models.tensor("y", [2])],
        opset_imports=[onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("nowhere", 1)],
    )  # fmt: skip
    onnx_models.save(proto, tmp_path / "odd.onnx")
    for _ in range(2):
        done = gate(one("odd.onnx") + one())
        assert done.code == 1
        assert results(done)[0] == "failed"
        assert results(done)[1] in ("compiled", "cache")
        assert "nowhere" in done.json()["targets"][0]["variants"][0]["error"]


def test_a_failure_on_record_is_tried_again(
    gate: Callable[..., Done], shell: Shell, model: Path
) -> None:
    with Cache.open(shell.cache, strict=True) as cache:
        ((_, key),) = Plans(cache, OnnxRuntime()).keys(model)
        lease = cache.acquire_files(key)
        assert isinstance(lease, ArtifactLease)
        with lease:
            lease.refuse(RuntimeError("on a bad day"), lifetime=3600.0)
    done = gate(one())
    assert (done.code, results(done)) == (0, ["compiled"])


def test_a_compiler_that_crashes_costs_only_its_own_model(
    gate: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(that_does(tmp_path / "lib", "openvino", CRASHES))
    crashing = one(backend="openvino", shapes="x=N{1,8}x16", name="crashing")
    done = gate(crashing + one())
    assert done.code == 1
    assert results(done) == ["failed", "not run", "compiled"]
    crashed, sound = done.json()["targets"]
    assert "SIGSEGV" in crashed["variants"][0]["error"]
    assert (crashed["passed"], sound["passed"]) == (False, True)
    assert gate(crashing + "required = false\n" + one()).code == 0


def test_a_compiler_that_hangs_is_ended_in_time(
    gate: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(that_does(tmp_path / "lib", "openvino", HANGS))
    done = gate(one(backend="openvino", timeout=3, name="hanging") + one())
    assert done.code == 1
    assert results(done) == ["failed", "compiled"]
    hanging = done.json()["targets"][0]
    assert hanging["variants"][0]["error"] == "took longer than 3 s"
    assert 3 <= hanging["seconds"] < 60


# -- answers ---------------------------------------------------------------------------------------


def change_canary(folder: Path) -> None:
    """Keep the one stored plan as if it had given another answer when it was made."""
    with Cache.open(folder, strict=True) as cache, tempfile.TemporaryDirectory() as kept:
        (entry,) = cache.entries("plan/1")
        found = cache.get_files(entry.key)
        assert isinstance(found, Hit)
        found.value.copy_to(Path(kept))
        canary = Path(kept) / "canary"
        right = Arrays().decode(memoryview(canary.read_bytes()))
        canary.write_bytes(Arrays().encode({name: each + 1 for name, each in right.items()}))
        cache.forget(entry.key)
        lease = cache.acquire_files(entry.key)
        assert isinstance(lease, ArtifactLease)
        with lease:
            shutil.copytree(kept, lease.staging, dirs_exist_ok=True)
            facts = found.value.descriptor
            lease.commit(cost=facts.cost, tags=facts.tags, detail=facts.detail)


def test_a_stored_plan_that_answers_differently_is_made_again_and_said(
    gate: Callable[..., Done], shell: Shell, tmp_path: Path
) -> None:
    assert gate(one()).code == 0
    change_canary(shell.cache)
    done = gate(one())
    variant = done.json()["targets"][0]["variants"][0]
    assert (done.code, variant["result"], variant["reason"]) == (0, "compiled", "canary")
    change_canary(shell.cache)
    told = shell("gate", tmp_path / "plan.toml").out
    assert "was made again: the stored plan gave another result" in told


def test_answers_are_held_against_a_reference(
    gate: Callable[..., Done], shell: Shell, model: Path, tmp_path: Path
) -> None:
    shell("run", model, "--shapes", "x=N{1,8}x16", "--output", tmp_path / "right.npz")
    plan = one(shapes="x=N{1,8}x16") + "reference = {outputs = 'right.npz'}\n"
    done = gate(plan)
    first, second = done.json()["targets"][0]["variants"]
    assert done.code == 0
    assert "reference" in same(first)
    assert "reference" not in same(second), "its request runs in the other bucket"
    with np.load(tmp_path / "right.npz") as right:
        np.savez(tmp_path / "wrong.npz", y=right["y"] + 0.5)
    wrong = gate(plan.replace("right", "wrong"))
    assert wrong.code == 1
    assert results(wrong) == ["failed", "cache"]
    assert gate(plan.replace("right", "wrong")).code == 1, "and it is not taken for granted later"
    error = wrong.json()["targets"][0]["variants"][0]["error"]
    assert error == "it does not give the answers of the reference: output 'y' has other values"
    assert gate(plan.replace("right", "missing")).code == 1
    assert gate(plan.replace("right.npz'", "wrong.npz', tolerance = 9.0")).code == 0


def test_a_reference_without_answers_is_none(
    gate: Callable[..., Done], model: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "empty.npz")
    np.savez(tmp_path / "nan.npz", y=np.full((1, 16), np.nan, np.float32))
    for name in ("empty", "nan"):
        done = gate(one(shapes="x=N{1}x16") + f"reference = {{outputs = '{name}.npz'}}\n")
        assert done.code == 1
        assert "holds no answers" in done.json()["targets"][0]["error"]


def test_values_that_json_does_not_have_reach_the_test(gate: Callable[..., Done]) -> None:
    done = gate(one(shapes="x=N{1}x16") + "pad = {x = -inf}\n")
    assert done.code == 0, done.out


def test_inputs_of_a_reference_are_padded_as_requests_are(
    gate: Callable[..., Done], model: Path, tmp_path: Path
) -> None:
    import onnxruntime

    x = np.random.default_rng(1).standard_normal((5, 16)).astype(np.float32)
    y = onnxruntime.InferenceSession(str(model)).run(None, {"x": x})[0]
    np.savez(tmp_path / "x.npz", x=x)
    np.savez(tmp_path / "y.npz", y=y)
    files = "reference = {inputs = 'x.npz', outputs = 'y.npz'}\n"
    done = gate(one(shapes="x=N{1,8}x16") + files)
    assert done.code == 0
    assert "reference" in same(done.json()["targets"][0]["variants"][1])
    assert gate(one(shapes="x=N{1,4}x16") + files).code == 1, "no bucket takes it"


def test_a_plan_that_nothing_ran_does_not_pass(gate: Callable[..., Done], tmp_path: Path) -> None:
    text = onnx.TensorProto.STRING
    proto = onnx_models.model(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        [onnx_models.tensor("x", [2], text)],
        [onnx_models.tensor("y", [2], text)],
    )
    onnx_models.save(proto, tmp_path / "text.onnx")
    done = gate(one("text.onnx"))
    assert done.code == 1
    variant = done.json()["targets"][0]["variants"][0]
    assert "never run" in variant["error"]
    assert "reference" in variant["hint"]


@pytest.fixture
def random_model(tmp_path: Path) -> Path:
    nodes = [
        onnx.helper.make_node("RandomNormalLike", ["x"], ["r"]),
        onnx.helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    shapes = [onnx_models.tensor("x", [4])], [onnx_models.tensor("y", [4])]
    return onnx_models.save(onnx_models.model(nodes, *shapes), tmp_path / "random.onnx")


def test_answers_that_differ_from_run_to_run_do_not_pass_unless_they_are_said_to(
    gate: Callable[..., Done], shell: Shell, random_model: Path, tmp_path: Path
) -> None:
    for _ in range(2):  # as it is made, and as it is found
        done = gate(one("random.onnx") + one())
        assert done.code == 1
        assert results(done)[0] == "unverified"
        (variant,) = done.json()["targets"][0]["variants"]
        assert (variant["passed"], variant["nondeterministic"]) == (False, True)
        assert variant["error"] == "it can't be verified: its answers differ from run to run"
        assert "nondeterministic = true" in variant["hint"]
    shown = shell("gate", tmp_path / "plan.toml").out
    assert "random.onnx x=4 unverified: it can't be verified: its answers differ" in shown
    assert gate(one("random.onnx", required=False) + one()).code == 0

    said = gate(one("random.onnx", nondeterministic=True))
    assert (said.code, results(said)) == (0, ["cache"])
    assert said.json()["targets"][0]["variants"][0]["nondeterministic"]
    assert "nothing: it differs from run to run" in shell("gate", tmp_path / "plan.toml").out


def test_what_is_said_to_differ_and_does_not_is_held_against_all(
    gate: Callable[..., Done], model: Path, tmp_path: Path
) -> None:
    plan = one(nondeterministic=True, shapes="x=N{1}x16")
    done = gate(plan)
    variant = done.json()["targets"][0]["variants"][0]
    assert (done.code, variant["nondeterministic"]) == (0, False)
    assert {"canary", "uncompiled"} <= set(same(variant))
    np.savez(tmp_path / "wrong.npz", y=np.ones((1, 16), np.float32))
    assert gate(plan + "reference = {outputs = 'wrong.npz'}\n").code == 1


def test_a_reference_says_what_may_differ(
    gate: Callable[..., Done], random_model: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "about.npz", y=np.ones(4, np.float32))
    plan = one("random.onnx") + "reference = {outputs = 'about.npz', tolerance = 50}\n"
    assert gate(plan).code == 0
    assert gate(plan.replace("50", "1e-6")).code == 1


# -- a layer ---------------------------------------------------------------------------------------


def test_plans_of_a_layer_are_tested(
    gate: Callable[..., Done], shell: Shell, tmp_path: Path
) -> None:
    bundle, layer = tmp_path / "net.bundle", tmp_path / "layer"
    assert gate(one()).code == 0
    assert shell("bundle", "create", bundle).code == 0
    assert shell("bundle", "install", bundle, layer, "--allow-unsigned").code == 0
    shutil.rmtree(shell.cache)
    found = gate(one(), "--layer", layer)
    assert (found.code, results(found)) == (0, ["cache"])
    assert results(gate(one())) == ["compiled"], "it is nowhere else"


# -- upgrades --------------------------------------------------------------------------------------


def test_an_upgrade_is_compiled_held_against_the_old_answers_and_named(
    gate: Callable[..., Done], shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "passed.json"
    first = gate(one(), "--report", report)
    assert first.code == 0
    assert "changes" not in first.json()
    again = gate(one(), "--report", report)
    assert (results(again), again.json()["changes"]) == (["cache"], [])

    monkeypatch.syspath_prepend(as_version(tmp_path / "lib", "onnxruntime", "99.0"))
    upgraded = gate(one(), "--report", report)
    assert upgraded.code == 0
    assert results(upgraded) == ["compiled"]
    assert "previous" in same(upgraded.json()["targets"][0]["variants"][0])
    (change,) = upgraded.json()["changes"]
    assert [each["field"] for each in change["differences"]] == ["backend.version"]
    assert change["differences"][0]["now"] == "onnxruntime 99.0"

    gone = gate(one(name="other"), "--report", report).json()["changes"]
    assert [(each["name"], each["kind"]) for each in gone] == [
        ("other", "new"),
        ("net.onnx", "gone"),
    ]


def test_an_upgrade_that_changes_the_answers_is_stopped_unless_that_is_wanted(
    gate: Callable[..., Done], shell: Shell, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path = model.parent
    report = tmp_path / "passed.json"
    assert gate(one(), "--report", report).code == 0
    passed = report.read_bytes()
    change_canary(shell.cache)
    monkeypatch.syspath_prepend(as_version(tmp_path / "lib", "onnxruntime", "99.0"))
    for _ in range(2):
        stopped = gate(one(), "--report", report)
        assert stopped.code == 1
        error = stopped.json()["targets"][0]["variants"][0]["error"]
        assert "it answers differently: output 'y' has other values than the plan by onnxr" in error
        assert report.read_bytes() == passed, "a record of what passed"
    # Nor does it pass when a server has made the plan before the gate could look.
    assert trivet(shell.cache, "run", model, PYTHONPATH=str(tmp_path / "lib")).code == 0
    assert gate(one(), "--report", report).code == 1
    assert gate(one(previous=False), "--report", report).code == 0


def test_a_report_of_something_else_is_refused(gate: Callable[..., Done], tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert gate(one(), "--report", other).code == 1
    assert other.read_text() == "{}"


def test_a_report_that_can_not_be_written_is_told_before_anything_is_tested(
    gate: Callable[..., Done], shell: Shell, tmp_path: Path
) -> None:
    done = gate(one(), "--report", tmp_path / "nowhere" / "report.json")
    assert done.code == 2
    assert not shell.cache.exists()


def test_a_cache_that_can_not_be_used_is_no_pass(gate: Callable[..., Done], shell: Shell) -> None:
    """Everywhere else it would be a warning, and everything compiled in memory."""
    shell.cache.mkdir()
    shell.cache.chmod(0o777)
    done = gate(one())
    assert done.code == 1
    assert "can be written by other users" in done.json()["targets"][0]["error"]


def test_two_gates_at_once_compile_once(model: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(one())
    told: list[Done] = []

    def run() -> None:
        told.append(trivet(tmp_path / "c", "gate", tmp_path / "plan.toml", "--json"))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [each.code for each in told] == [0, 0]
    assert sorted(results(each)[0] for each in told) == ["cache", "compiled"]


@pytest.mark.timeout(90)
def test_an_interrupt_ends_the_gate_and_all_that_it_started(model: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"import os, signal\nwith open({str(pid_file)!r}, 'w') as f: f.write(str(os.getpid()))"
    library = that_does(tmp_path / "lib", "openvino", f"{code}\nsignal.pause()")
    (tmp_path / "plan.toml").write_text(one(backend="openvino") + one())
    # A shell starts background jobs, and so what they start, with interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    running = subprocess.Popen(
        [COMMAND, "gate", str(tmp_path / "plan.toml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path / "c", PYTHONPATH=str(library)),
    )
    signal.signal(signal.SIGINT, before)
    try:
        eventually(lambda: pid_file.exists() and bool(pid_file.read_text()), "it hangs", 60)
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, out) == (130, b"")
    assert not Path(f"/proc/{pid_file.read_text()}").exists()
