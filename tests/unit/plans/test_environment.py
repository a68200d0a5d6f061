"""Which environment variables enter a key, and which values look volatile."""

from __future__ import annotations

import pytest

from trivet.keys import Key
from trivet.plans.backend import Severity
from trivet.plans.environment import Rules, is_read, neutral_reason, significant
from trivet.plans.facts.onnxruntime import ENVIRONMENT as ONNXRUNTIME
from trivet.plans.facts.openvino import ENVIRONMENT as OPENVINO
from trivet.plans.facts.torch import ENVIRONMENT as TORCH
from trivet.plans.volatile import volatile_factors

# Every variable that ONNX Runtime 1.32 and OpenVINO 2026.4 were seen to read while compiling and
# running a small model (calls to getenv), apart from those of Python, NumPy, the TLS library and of
# telemetry that looks for the names of CI systems.
READ = {
    "onnxruntime": """
ALLOW_RELEASED_ONNX_OPSET_ONLY MLAS_NCHWC_FILTERSET_BALANCE MLAS_NCHWC_FSS_TARGET
ORT_DISABLE_TELEMETRY ORT_INTRA_OP_NUM_THREADS ORT_LOAD_CONFIG_FROM_MODEL
ORT_MOE_PACKED_GPU_EXPERTS ORT_QMOE_MIN_EXPERT_WEIGHT ORT_QMOE_SKIP_TAIL_COLD_ONLY
ORT_QMOE_SKIP_ZERO_COLD_DOORBELL ORT_QMOE_TAIL_SUBSTITUTION_MIN_RANK
ORT_QMOE_TAIL_SUBSTITUTION_THRESHOLD ORT_RUNNING_UNIT_TESTS
""",
    "openvino": """
DNNL_DEFAULT_FPMATH_MODE DNNL_ITT_TASK_LEVEL DNNL_JIT_DUMP DNNL_JIT_PROFILE DNNL_MAX_CPU_ISA
DNNL_PRIMITIVE_CACHE_CAPACITY DNNL_VERBOSE KMP_FOR_TCHECK KMP_FOR_TPROFILE
ONEDNN_DEFAULT_FPMATH_MODE ONEDNN_ITT_TASK_LEVEL ONEDNN_JIT_DUMP ONEDNN_JIT_PROFILE
ONEDNN_MAX_CPU_ISA ONEDNN_PRIMITIVE_CACHE_CAPACITY ONEDNN_VERBOSE ONNX_ITERATOR OV_CPU_MAX_ISA
OV_ENABLE_PROFILE_PASS OV_ENABLE_SERIALIZE_TRACING OV_ENABLE_VISUALIZE_TRACING
OV_TURBOQ_NORM_CORRECTION TBB_ENABLE_SANITIZERS TBB_MALLOC_SET_HUGE_SIZE_THRESHOLD
TBB_MALLOC_USE_HUGE_PAGES TBB_VERSION
""",
}

EACH = pytest.mark.parametrize(
    "rules", [ONNXRUNTIME, OPENVINO, TORCH], ids=["onnxruntime", "openvino", "torch"]
)


@pytest.mark.parametrize(
    ("framework", "rules"), [("onnxruntime", ONNXRUNTIME), ("openvino", OPENVINO)]
)
def test_every_variable_that_was_seen_to_be_read_is_classified(
    framework: str, rules: Rules
) -> None:
    assert [name for name in READ[framework].split() if not is_read(name, rules)] == []


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("ORT_SWITCH_OF_NEXT_YEAR", ONNXRUNTIME),
        ("MLAS_NCHWC_FSS_TARGET", ONNXRUNTIME),
        ("OV_CPU_MAX_ISA", OPENVINO),
        ("ONEDNN_MAX_CPU_ISA", OPENVINO),
        ("ONEDNN_DEFAULT_FPMATH_MODE", OPENVINO),
        ("OV_SWITCH_OF_NEXT_YEAR", OPENVINO),
        ("LD_PRELOAD", ONNXRUNTIME),
        ("LD_LIBRARY_PATH", OPENVINO),
        ("GLIBC_TUNABLES", OPENVINO),
    ],
)
def test_a_variable_that_is_read_enters_the_key_heard_of_or_not(name: str, rules: Rules) -> None:
    assert significant({name: "1"}, rules) == {name: "1"}
    assert significant({name: "1"}, rules) != significant({name: "2"}, rules)
    assert significant({name: "1"}, rules) != significant({}, rules)


@EACH
def test_variables_of_others_do_not_enter_the_key(rules: Rules) -> None:
    others = {"HOME": "/root", "HOSTNAME": "pod-1", "PATH": "/bin", "NPY_DISABLE_CPU_FEATURES": "X"}
    assert significant(others, rules) == {}


@EACH
def test_every_neutral_variable_is_one_that_is_read_and_has_a_reason(rules: Rules) -> None:
    for name, reason in rules.neutral.items():
        example = name.replace("*", "X")
        assert is_read(example, rules), f"{name} needs no exception"
        assert len(reason) > 10
        assert neutral_reason(example, rules) == reason
        assert significant({example: "1"}, rules) == {}


def test_a_neutral_pattern_reaches_no_further_than_its_prefix() -> None:
    assert neutral_reason("TBB_MALLOC_USE_HUGE_PAGES", OPENVINO) is not None
    assert neutral_reason("TBB_MALLOC", OPENVINO) is None
    assert neutral_reason("ONEDNN_VERBOSE_TIMESTAMP", OPENVINO) is None


@EACH
def test_empty_differs_from_unset_except_for_the_loader(rules: Rules) -> None:
    name = f"{rules.prefixes[0]}ANY"
    assert significant({name: ""}, rules) == {name: ""}
    loader = {"LD_PRELOAD": "", "LD_LIBRARY_PATH": "", "LD_AUDIT": "", "GLIBC_TUNABLES": ""}
    assert significant(loader, rules) == {}


def test_the_order_of_the_environment_does_not_matter() -> None:
    one = significant({"ORT_B": "1", "ORT_A": "2"}, ONNXRUNTIME)
    other = significant({"ORT_A": "2", "ORT_B": "1"}, ONNXRUNTIME)
    assert list(one.items()) == list(other.items())


def test_a_value_that_is_not_unicode_has_a_place_in_the_key() -> None:
    fields = significant({"ORT_PATH": "/m\udcff", "ORT_\udcfe": "1"}, ONNXRUNTIME)
    assert fields == {"ORT_PATH": b"/m\xff", "ORT_\\udcfe": "1"}
    Key("plan/1", {"environment": fields})


@pytest.mark.parametrize(
    "value",
    [
        "10.12.0.7",
        "tcp://10.1.2.3:8080",
        "fe80:0:0:0:1:2:3:4",
        "run-2026-11-30T10:15",
        "build 1764473851",
        "1764473851.25",
        "/tmp/plugin.so",
        "dir=/dev/shm/x",
        "/proc/self/fd/3",
        "6f1c1a0e-9f5b-4c55-8a4b-3f1f6a3b1c11",
        "web-7d4b9c6f5d-x2vqp",
        "http://node-seven:80",
    ],
)
def test_a_value_that_changes_from_start_to_start_is_found(value: str) -> None:
    (finding,) = volatile_factors(
        {"environment": {"ORT_ANY": value}, "n": 1}, host_name="node-seven"
    )
    assert finding.code == "volatile-factor"
    assert finding.severity is Severity.WARNING
    assert "environment.ORT_ANY" in finding.message
    assert repr(value) in finding.message


@pytest.mark.parametrize(
    "value",
    ["", "1", "128", "true", "1.32.0", "AVX2", "f16:f32:bf16", "/usr/lib/libjemalloc.so.2",
     "CPUExecutionProvider", "2026.4.1-22982-abc123-releases/2026/4", "glibc.cpu.hwcaps=-AVX2",
     "session.intra_op.allow_spinning", "0x80000001", "node-seventeen"],
)  # fmt: skip
def test_an_ordinary_value_is_not_taken_for_a_volatile_one(value: str) -> None:
    assert volatile_factors({"a": value, "b": [value]}, host_name="node-seven") == []


def test_volatile_values_are_found_at_any_depth() -> None:
    fields = {"options": [{"provider": {"path": "/tmp/x"}}]}
    (finding,) = volatile_factors(fields, host_name="")
    assert finding.message.startswith("options[0].provider.path ")
