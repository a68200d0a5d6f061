"""Options of the ONNX Runtime backend: what each changes, what enters the key, what lint finds."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
from onnx import helper
from tests.support.onnx_models import mlp, model, save, tensor

from trivet.errors import BackendError, MissingExtra
from trivet.keys import Key
from trivet.plans.backend import FailureKind, Severity
from trivet.plans.backends import OnnxRuntime
from trivet.plans.backends.onnxruntime_plan import scan
from trivet.plans.graph import identify
from trivet.plans.host import read_host

SPINNING = "session.intra_op.allow_spinning"
DENORMALS = "session.set_denormal_as_zero"


@pytest.fixture
def mlp_file(tmp_path: Path) -> Path:
    return save(mlp(64), tmp_path / "model" / "model.onnx")


def key(backend: OnnxRuntime, environment: Mapping[str, str] | None = None) -> Key:
    return Key("test/1", backend.key_fields(read_host(environment or {})))


def compiled(backend: OnnxRuntime, source: Path, folder: Path) -> Any:
    folder.mkdir()
    return backend.compile(source, identify(source), {}, folder).executable.native


def operators(backend: OnnxRuntime, source: Path, folder: Path) -> set[str]:
    compiled(backend, source, folder)
    return {name for _, name in scan(folder / "model.onnx").operators}


# -- each option changes something -----------------------------------------------------------------


def test_threads_are_the_sessions_and_not_the_plans(mlp_file: Path, tmp_path: Path) -> None:
    one, two = OnnxRuntime(threads=1), OnnxRuntime(threads=2)
    for backend, number in ((one, 1), (two, 2)):
        session = compiled(backend, mlp_file, tmp_path / str(number))
        assert session.get_session_options().intra_op_num_threads == number
    for name in ("model.onnx", "weights.bin"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    assert key(one) == key(two)


def test_threads_between_operators_run_them_in_parallel(mlp_file: Path, tmp_path: Path) -> None:
    plain = compiled(OnnxRuntime(), mlp_file, tmp_path / "plain").get_session_options()
    parallel = compiled(
        OnnxRuntime(inter_op_threads=2), mlp_file, tmp_path / "parallel"
    ).get_session_options()
    assert plain.execution_mode != parallel.execution_mode
    assert parallel.inter_op_num_threads == 2
    for name in ("model.onnx", "weights.bin"):
        plain_bytes = (tmp_path / "plain" / name).read_bytes()
        assert plain_bytes == (tmp_path / "parallel" / name).read_bytes()
    assert key(OnnxRuntime()) == key(OnnxRuntime(inter_op_threads=2))


def test_level_decides_what_is_fused(mlp_file: Path, tmp_path: Path) -> None:
    assert operators(OnnxRuntime(level="basic"), mlp_file, tmp_path / "basic") == {"Gemm", "Relu"}
    assert operators(OnnxRuntime(level="extended"), mlp_file, tmp_path / "ext") == {"FusedGemm"}


def test_a_disabled_optimizer_does_not_fuse(mlp_file: Path, tmp_path: Path) -> None:
    backend = OnnxRuntime(disabled_optimizers=["GemmActivationFusion"])
    assert operators(backend, mlp_file, tmp_path / "plan") == {"Gemm", "Relu"}


def test_entries_reach_the_session_of_a_loaded_plan_and_of_a_fallback(
    mlp_file: Path, tmp_path: Path
) -> None:
    backend = OnnxRuntime(options={DENORMALS: "1"})
    for session in (
        compiled(backend, mlp_file, tmp_path / "plan"),
        backend.fallback(mlp_file, {}).native,
    ):
        assert session.get_session_options().get_session_config_entry(DENORMALS) == "1"


def test_a_custom_operator_library_is_registered(mlp_file: Path) -> None:
    # A library of the right kind without the entry point: ONNX Runtime says what it looked for.
    library = next(
        Path(module.__file__)
        for module in list(sys.modules.values())
        if getattr(module, "__file__", None) and str(module.__file__).endswith(".so")
    )
    backend = OnnxRuntime(custom_op_libraries=[library])
    with pytest.raises(Exception, match="RegisterCustomOps") as caught:
        backend.fallback(mlp_file, {})
    assert backend.classify(caught.value) is FailureKind.DETERMINISTIC


def test_other_providers_run_models_but_keep_no_plans(mlp_file: Path, tmp_path: Path) -> None:
    names = ["AzureExecutionProvider", "CPUExecutionProvider"]
    backend = OnnxRuntime(providers=names)
    assert backend.fallback(mlp_file, {}).native.get_providers() == names
    with pytest.raises(BackendError, match="AzureExecutionProvider") as caught:
        compiled(backend, mlp_file, tmp_path / "plan")
    assert backend.classify(caught.value) is FailureKind.DETERMINISTIC
    assert list((tmp_path / "plan").iterdir()) == []


def test_a_provider_that_is_not_installed_is_not_replaced_by_another(mlp_file: Path) -> None:
    backend = OnnxRuntime(providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    with pytest.raises(BackendError, match="has no CUDAExecutionProvider"):
        backend.fallback(mlp_file, {})


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"threads": 0},
        {"threads": True},
        {"threads": "2"},
        {"inter_op_threads": -1},
        {"level": "99"},
        {"options": {DENORMALS: 1}},
        {"options": {DENORMALS: True}},
        {"options": {"": "1"}},
        {"options": {"session.save_model_format": "ORT"}},
        {"options": {"session.optimized_model_filepath": "mine.onnx"}},
        {"options": {"session.graph_optimization_level": "1"}},
        {"disabled_optimizers": "GemmActivationFusion"},
        {"disabled_optimizers": [1]},
        {"custom_op_libraries": "ops.so"},
        {"custom_op_libraries": ["no-such-file.so"]},
        {"providers": ()},
        {"providers": "CPUExecutionProvider"},
        {"providers": [("CPUExecutionProvider", {"use_arena": True})]},
    ],
    ids=str,
)
def test_options_that_can_not_be_honoured_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BackendError):
        OnnxRuntime(**wrong)


class _Nowhere(MetaPathFinder):
    """Makes ONNX Runtime impossible to find."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "onnxruntime":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_a_missing_framework_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Nowhere(), *sys.meta_path])
    backend = OnnxRuntime()
    for attempt in (backend.facts, backend.warm_import):
        with pytest.raises(MissingExtra, match=r"pip install 'trivet\[onnxruntime\]'"):
            attempt()
    assert codes(backend) == ["not-installed"]


def test_an_error_that_nobody_has_seen_is_not_recorded() -> None:
    assert OnnxRuntime().classify(Exception("something new")) is FailureKind.TRANSIENT


def test_a_model_with_unknown_operators_fails_for_good(tmp_path: Path) -> None:
    backend = OnnxRuntime()
    for domain in ("", "my.ops"):
        proto = model(
            [helper.make_node("NoSuchOperator", ["x"], ["y"], domain=domain)],
            [tensor("x", [4])],
            [tensor("y", [4])],
            opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)],
        )
        source = save(proto, tmp_path / f"m{domain}.onnx")
        with pytest.raises(Exception, match="NoSuchOperator") as caught:
            compiled(backend, source, tmp_path / f"plan{domain}")
        assert backend.classify(caught.value) is FailureKind.DETERMINISTIC


# -- the key ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"level": "extended"},
        {"options": {DENORMALS: "1"}},
        {"options": {"session.nobody_knows": "1"}},
        {"disabled_optimizers": ["GemmActivationFusion"]},
        {"providers": ["AzureExecutionProvider", "CPUExecutionProvider"]},
        {"providers": [("CPUExecutionProvider", {"use_arena": "0"})]},
    ],
    ids=str,
)
def test_an_option_that_a_plan_depends_on_changes_the_key(changed: dict[str, Any]) -> None:
    assert key(OnnxRuntime(**changed)) != key(OnnxRuntime())


def test_how_threads_wait_does_not_change_the_key() -> None:
    assert key(OnnxRuntime(options={SPINNING: "0"})) == key(OnnxRuntime())


def test_the_order_in_which_options_are_given_does_not_change_the_key() -> None:
    entries = {DENORMALS: "1", "session.disable_quant_qdq": "1"}
    turned = dict(reversed(entries.items()))
    assert key(OnnxRuntime(options=entries)) == key(OnnxRuntime(options=turned))
    names = ["MatMulAddFusion", "GemmActivationFusion"]
    assert key(OnnxRuntime(disabled_optimizers=names)) == key(
        OnnxRuntime(disabled_optimizers=names[::-1])
    )


def test_custom_operator_libraries_count_by_content_and_not_by_path(tmp_path: Path) -> None:
    keys = []
    for folder, content in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        path = tmp_path / folder / "ops.so"
        path.parent.mkdir()
        path.write_bytes(content)
        keys.append(key(OnnxRuntime(custom_op_libraries=[path])))
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_environment_that_the_framework_reads_is_in_the_key() -> None:
    plain = key(OnnxRuntime(), {"HOME": "/a"})
    assert plain == key(OnnxRuntime(), {"HOME": "/b"})
    assert plain != key(OnnxRuntime(), {"ORT_SOMETHING_NEW": "1"})


# -- lint ------------------------------------------------------------------------------------------


def codes(backend: OnnxRuntime) -> list[str]:
    return [each.code for each in backend.lint()]


@pytest.mark.parametrize(
    "entry",
    ["session.compile_allow_cache", "session.cache_path", "session.cache_encoding"],
)
def test_lint_finds_entries_that_do_nothing(entry: str) -> None:
    findings = OnnxRuntime(options={entry: "1"}).lint()
    assert [each.code for each in findings] == ["unknown-option"]
    assert entry in findings[0].message


@pytest.mark.parametrize(
    "entry",
    [
        SPINNING,
        DENORMALS,
        "session.disable_prepacking",
        "session.use_device_allocator_for_initializers",
        "session.model_external_initializers_file_folder_path",  # in pieces in the binary
        "optimization.enable_gelu_approximation",
    ],
)
def test_lint_says_nothing_about_entries_that_work(entry: str) -> None:
    assert codes(OnnxRuntime(options={entry: "1"})) == []


def test_lint_finds_optimizers_that_do_not_exist() -> None:
    assert codes(OnnxRuntime(disabled_optimizers=["GemmActivationFusion"])) == []
    assert codes(OnnxRuntime(disabled_optimizers=["GemmActivationFusoin"])) == ["unknown-option"]


def test_lint_warns_of_an_entry_that_crashes() -> None:
    findings = OnnxRuntime(options={"session.use_ort_model_bytes_for_initializers": "1"}).lint()
    assert [(each.code, each.severity) for each in findings] == [("option-crashes", Severity.ERROR)]


def test_lint_warns_of_entries_that_write_files() -> None:
    assert codes(OnnxRuntime(options={"ep.context_enable": "1"})) == ["option-writes-files"]


def test_lint_warns_of_providers_without_plans() -> None:
    assert codes(OnnxRuntime(providers=["AzureExecutionProvider"])) == ["provider-not-cached"]


def test_no_plan_is_kept_while_models_bring_their_own_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = mlp(64)
    config = {"session_options": {"intra_op_num_threads": 7}}
    proto.metadata_props.add(key="ort_config", value=json.dumps(config))
    source = save(proto, tmp_path / "model" / "model.onnx")
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")

    backend = OnnxRuntime(threads=2)
    session = backend.fallback(source, {}).native
    assert session.get_session_options().intra_op_num_threads == 7  # behind everybody's back
    with pytest.raises(BackendError, match="ORT_LOAD_CONFIG_FROM_MODEL"):
        compiled(backend, source, tmp_path / "plan")
    assert codes(backend) == ["options-from-models"]
