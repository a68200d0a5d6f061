"""Every finding of the doctor, each produced by what it is about."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
from tests.support import onnx_models
from tests.support.cli import Shell

from trivet.cache import ArtifactLease, Cache
from trivet.keys import Key
from trivet.plans.activity import KEY_LIMIT, Activity, PlanUse
from trivet.plans.backends import OnnxRuntime
from trivet.plans.errors import NotWorthKeeping
from trivet.plans.plans import Plans


def codes(shell: Shell, *arguments: object, code: int = 0) -> dict[str, str]:
    """Codes of the findings, each with its severity."""
    done = shell("doctor", *arguments, "--json")
    assert done.code == code, done
    findings = [each for section in done.json()["sections"] for each in section["findings"]]
    assert all(each["message"] for each in findings)
    assert all(each["hint"] for each in findings if each["severity"] != "info")
    return {each["code"]: each["severity"] for each in findings}


def log(cache: Path, *uses: Mapping[str, Any]) -> None:
    with Cache.open(cache, strict=True) as opened:
        assert opened.store is not None
        activity = Activity(opened.store.root)
    for each in uses:
        facts = {
            "time": time.time(),
            "model": "net.onnx",
            "graph": "g1",
            "backend": "onnxruntime",
            "bucket": "x=1x16",
            "source": "compiled",
            "key": "k1",
        }
        activity.append(PlanUse(**{**facts, **each}))


def store(cache: Path, key: Key) -> None:
    """Keep a plan under ``key``, as another machine or build would have."""
    with Cache.open(cache, strict=True) as opened:
        lease = opened.acquire_files(key)
        assert isinstance(lease, ArtifactLease)
        with lease:
            (lease.staging / "plan").write_bytes(b"plan")
            lease.commit()


def key_of(model: Path) -> Key:
    ((_, key),) = Plans(Cache(None), OnnxRuntime()).keys(model)
    return key


@pytest.mark.parametrize(
    "more", [{}, {"host": 1, "graph": 2}, {"host": {"machine": 1, "instruction_set": (1, 2)}}]
)
def test_plans_whose_keys_have_another_form_stop_no_command(
    shell: Shell, model: Path, more: dict[str, Any]
) -> None:
    store(shell.cache, Key("plan/1", {"backend": {"name": "onnxruntime"}, **more}))
    store(shell.cache, Key("plan/1", {"backend": "onnxruntime"}))
    assert shell("doctor").code in (0, 1)
    assert shell("ls").code == 0
    assert shell("stats").code == 0
    assert shell("why", model, "--backend", "onnxruntime").code == 3
    assert shell("drop", model, "--yes").code in (0, 3)


def test_a_healthy_cache_has_no_finding(shell: Shell, model: Path) -> None:
    shell("run", model)
    shell("run", model)
    assert codes(shell, model) == {}
    said = shell("doctor", model).out
    assert "1 of 1 variants would hit" in said
    assert "0 errors, 0 warnings" in said


def test_a_missing_folder_is_named_and_not_made(shell: Shell) -> None:
    assert codes(shell) == {"no-folder": "warning"}
    assert not shell.cache.exists()


def test_no_folder_and_no_way_to_make_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    assert codes(shell, code=1)["no-folder"] == "error"


def test_a_file_where_the_folder_should_be(shell: Shell) -> None:
    shell.cache.write_text("")
    assert codes(shell, code=1)["not-a-folder"] == "error"


def test_a_folder_without_plans_is_named(shell: Shell) -> None:
    shell.cache.mkdir(mode=0o700)
    assert codes(shell) == {"empty": "warning"}


def test_a_folder_that_others_can_write(shell: Shell) -> None:
    shell.cache.mkdir()
    shell.cache.chmod(0o777)
    assert codes(shell, code=1)["unsafe-permissions"] == "error"
    assert f"chmod go-w {shell.cache}" in shell("doctor").out


def test_a_folder_on_a_network_file_system(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.cache.mkdir(mode=0o700)
    monkeypatch.setattr("trivet.stores.host.network_filesystem", lambda path: "nfs4")
    assert codes(shell, code=1)["network-file-system"] == "error"


def test_a_folder_of_a_later_release(shell: Shell, model: Path) -> None:
    shell("run", model)
    import msgspec

    from trivet.stores.host.layout import Format, _check, _Checked

    later = Format(version=99, folder="a", map_size=1 << 30, boot="", clean=True)
    (shell.cache / "format.json").write_bytes(msgspec.json.encode(_Checked(later, _check(later))))
    assert codes(shell, code=1)["unusable"] == "error"


def test_a_folder_that_can_only_be_read(
    shell: Shell, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("run", model)
    access = os.access  # root may write anywhere
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))
    assert codes(shell)["read-only"] == "info"


def test_an_empty_folder_that_can_only_be_read(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.cache.mkdir(mode=0o700)
    mkdir = os.mkdir

    def refuse(path: Any, *rest: Any, **more: Any) -> None:
        if str(path).startswith(str(shell.cache)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        mkdir(path, *rest, **more)

    opened = os.open

    def only_to_read(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if str(path).startswith(str(shell.cache)) and flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr(os, "mkdir", refuse)
    monkeypatch.setattr(os, "open", only_to_read)
    assert codes(shell, code=1)["unwritable"] == "error"


def test_a_disk_that_is_nearly_full(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.cache.mkdir(mode=0o700)

    class Usage(NamedTuple):
        free: int = 1 << 20

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage())
    assert codes(shell)["disk-nearly-full"] == "warning"


def test_quarantined_entries_with_their_reasons(shell: Shell, model: Path) -> None:
    shell("run", model)
    with Cache.open(shell.cache, strict=True) as cache:
        (entry,) = cache.entries("plan/1")
        cache.quarantine(entry.key, "a bit had flipped")
    assert codes(shell)["quarantined"] == "warning"
    assert "a bit had flipped" in shell("doctor").out


def test_a_process_that_died_while_loading(shell: Shell, model: Path) -> None:
    shell("run", model)
    dies = f"""
import os, signal
from trivet.cache import Cache
cache = Cache.open({str(shell.cache)!r}, strict=True)
(entry,) = cache.entries("plan/1")
with cache.get_files(entry.key).value.loading():
    os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run([sys.executable, "-c", dies], check=False)
    assert died.returncode == -signal.SIGKILL
    for _ in range(2):  # looking does not take the mark away
        assert codes(shell)["crashed"] == "warning"


def test_the_mark_of_a_living_process_is_no_crash(shell: Shell, model: Path) -> None:
    shell("run", model)
    with Cache.open(shell.cache, strict=True) as cache:
        (entry,) = cache.entries("plan/1")
        with cache.get_files(entry.key).value.loading():  # type: ignore[union-attr]
            assert "crashed" not in codes(shell)


def test_a_recorded_failure_is_told_with_its_text(shell: Shell, model: Path) -> None:
    with Cache.open(shell.cache, strict=True) as cache:
        lease = cache.acquire_files(key_of(model))
        assert isinstance(lease, ArtifactLease)
        with lease:
            lease.refuse(RuntimeError("no such operator"), lifetime=60.0)
    assert codes(shell, model)["recorded-failure"] == "warning"
    assert "no such operator" in shell("doctor").out


def test_a_plan_that_is_not_worth_keeping_is_no_failure(shell: Shell, model: Path) -> None:
    with Cache.open(shell.cache, strict=True) as cache:
        lease = cache.acquire_files(key_of(model))
        assert isinstance(lease, ArtifactLease)
        with lease:
            lease.refuse(NotWorthKeeping("compiling takes 0.01 s"), lifetime=60.0)
    found = codes(shell, model)
    assert found["not-worth-keeping"] == "info"
    assert "recorded-failure" not in found
    assert "reading it back would take longer" in shell("why", model).out


def test_rules_whose_padding_changes_the_answers_are_no_hit(shell: Shell, tmp_path: Path) -> None:
    node = onnx.helper.make_node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=0)
    proto = onnx_models.model(
        [node], [onnx_models.tensor("x", ["N", 3])], [onnx_models.tensor("y", [3])]
    )
    mean = onnx_models.save(proto, tmp_path / "mean.onnx")
    rules = ("--shapes", "x=N{4}x3")
    assert "changes what the model answers" in shell("run", mean, *rules).err
    told = shell("why", mean, *rules)
    assert told.code == 3
    assert "the shape rules pad requests" in told.out
    assert "'y' has other values" in told.out
    assert codes(shell, mean, *rules)["padding"] == "warning"
    assert shell("why", mean, "--shapes", "x=4x3").code == 0, "the same plan, never padded to"


def test_entries_that_would_not_be_used(shell: Shell, model: Path) -> None:
    shell("run", model, "--release", "7")
    shell("drop", "--tag", "release=7", "--yes")
    assert codes(shell)["invalidated"] == "info"
    assert codes(shell, model)["invalidated"] == "warning"


def test_no_hit_in_the_log(shell: Shell) -> None:
    log(shell.cache, {}, {"bucket": "x=8x16"})
    assert "no-hit" not in codes(shell), "the first load of each variant"
    log(shell.cache, {})
    assert codes(shell)["no-hit"] == "warning"
    log(shell.cache, {"source": "cache"})
    assert "no-hit" not in codes(shell)


def test_a_key_that_is_another_one_at_every_start(shell: Shell) -> None:
    log(shell.cache, *({"key": f"k{i}"} for i in range(3)))
    assert codes(shell)["unstable-key"] == "warning"


def test_shapes_that_do_not_converge(shell: Shell) -> None:
    uses = [{"key": f"k{i}", "bucket": f"x={i}x16"} for i in range(KEY_LIMIT + 1)]
    log(shell.cache, *uses)
    assert codes(shell)["shapes-do-not-converge"] == "warning"


def test_a_model_that_runs_uncompiled(shell: Shell) -> None:
    log(shell.cache, {"source": "uncompiled", "error": "E: no"})
    assert codes(shell)["runs-uncompiled"] == "warning"


def test_a_folder_used_by_another_version(shell: Shell) -> None:
    log(shell.cache, {"trivet": "0.0.1"})
    assert codes(shell)["another-version"] == "info"


def test_a_model_whose_weights_changed(shell: Shell, model: Path) -> None:
    shell("run", model)
    onnx_models.save(onnx_models.dynamic_batch(seed=1), model)
    assert codes(shell, model)["model-changed"] == "warning"
    assert "its weights changed" in shell("doctor", model).out


def test_a_model_that_was_never_compiled(shell: Shell, model: Path, tmp_path: Path) -> None:
    shell("run", model)
    other = onnx_models.save(onnx_models.conv_net(), tmp_path / "other.onnx")
    assert codes(shell, other)["never-compiled"] == "warning"


def test_a_model_that_can_not_be_read(shell: Shell, model: Path, tmp_path: Path) -> None:
    shell("run", model)
    (tmp_path / "broken.onnx").write_bytes(b"\xff" * 100)
    assert codes(shell, tmp_path / "broken.onnx", code=1)["model"] == "error"


def test_plans_of_another_backend(shell: Shell, model: Path) -> None:
    shell("run", model)
    found = codes(shell, model, "--backend", "openvino")
    assert found["other-backend"] == "warning"


def test_a_plan_of_other_options_is_named(shell: Shell, model: Path) -> None:
    shell("run", model)
    assert codes(shell, model, "--option", "level=basic")["other-options"] == "warning"


def test_plans_of_other_hardware(shell: Shell, model: Path) -> None:
    key = key_of(model)
    wider = {**key["host"], "instruction_set": (*key["host"]["instruction_set"], "zz_future")}
    store(shell.cache, key.replace(host=wider))
    assert codes(shell, model)["other-hardware"] == "warning"
    assert "zz_future that this one lacks" in shell("doctor").out


def test_plans_of_another_architecture(shell: Shell, model: Path) -> None:
    key = key_of(model)
    store(shell.cache, key.replace(host={**key["host"], "machine": "riscv64"}))
    assert codes(shell)["other-hardware"] == "warning"


def test_plans_of_another_build(shell: Shell, model: Path) -> None:
    key = key_of(model)
    store(shell.cache, key.replace(backend={**key["backend"], "version": "onnxruntime 1.0"}))
    assert codes(shell, model)["other-build"] == "warning"


def test_an_option_that_does_nothing(shell: Shell) -> None:
    arguments = ("--backend", "onnxruntime", "--option", "session.compile_allow_cache=1")
    assert codes(shell, *arguments)["unknown-option"] == "warning"


def test_a_factor_that_changes_at_every_start(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_PEER", "10.42.7.19")
    assert codes(shell)["volatile-factor"] == "warning"


def test_an_instruction_set_that_can_not_be_told(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trivet.plans import host

    monkeypatch.setattr(host, "_instruction_set", lambda *_: ((), "no CPUID here"))
    assert codes(shell)["instruction-set-unknown"] == "warning"


def test_a_backend_whose_build_can_not_be_told(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = types.ModuleType("openvino")
    empty.__file__ = str(tmp_path / "openvino" / "__init__.py")
    monkeypatch.setitem(sys.modules, "openvino", empty)
    assert codes(shell, code=1)["unusable-backend"] == "error"


def test_a_backend_that_is_not_installed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert "not-installed" not in codes(shell), "nobody has all of them"
    assert codes(shell, "--backend", "openvino", code=1)["not-installed"] == "error"
    assert "pip install 'trivet[openvino]'" in shell("doctor", "--backend", "openvino").out
