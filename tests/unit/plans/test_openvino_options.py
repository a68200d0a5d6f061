"""Options of the OpenVINO backend: what is refused, bypassed, applied, and what enters the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trivet.errors import BackendError, MissingExtra
from trivet.keys import Key
from trivet.plans.backend import FailureKind
from trivet.plans.backends.openvino import OpenVino
from trivet.plans.backends.openvino_options import unknown_properties
from trivet.plans.backends.openvino_runtime import load_runtime
from trivet.plans.host import HostFacts, read_host


def host(**environment: str) -> HostFacts:
    return HostFacts(
        system="linux",
        machine="x86_64",
        instruction_set=("avx2",),
        libc="glibc-2.36",
        environment=environment,
    )


def key(backend: OpenVino, **environment: str) -> Key:
    return Key("test/1", backend.key_fields(host(**environment)))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"device": "GPU"}, "'CPU' only"),
    ({"device": "AUTO"}, "'CPU' only"),
    ({"threads": 0}, "threads is a number from 1"),
    ({"threads": True}, "threads is a number from 1"),
    ({"streams": -1}, "streams is a number from 1"),
    ({"hint": "fast"}, "hint is one of"),
    ({"precision": "int8"}, "precision is one of"),
    ({"threads": 2, "options": {"INFERENCE_NUM_THREADS": 2}}, "given twice"),
    ({"options": {"inference num threads": 2}}, "names like"),
    ({"options": {"NUM_STREAMS": [2]}}, "a string, a number or a bool, got list"),
    ({"options": {"WEIGHTS_PATH": "model.bin"}}, "must hold its weights"),
    ({"options": {"ENABLE_WEIGHTLESS": True}}, "must hold its weights"),
    ({"options": {"DEVICE_ID": "1"}}, "CPU only"),
    ({"extensions": "libops.so"}, "sequence of paths"),
    ({"extensions": ["/nonexistent/libops.so"]}, "does not exist"),
]


@pytest.mark.parametrize(("arguments", "text"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_cannot_be_honoured_is_refused_by_the_constructor(
    arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(BackendError, match=text):
        OpenVino(**arguments)


DIFFERENT: list[dict[str, Any]] = [
    {"threads": 1},
    {"threads": 2},
    {"streams": 2},
    {"hint": "latency"},
    {"hint": "throughput"},
    {"precision": "f32"},
    {"precision": "bf16"},
    {"options": {"ENABLE_CPU_PINNING": False}},
    {"options": {"ENABLE_CPU_PINNING": 0}},
    {"options": {"EXECUTION_MODE_HINT": "ACCURACY"}},
    {"options": {"A_PROPERTY_OF_TOMORROW": 1}},
]


def test_every_option_that_is_applied_is_in_the_key() -> None:
    keys = [key(OpenVino(**arguments)) for arguments in [{}, *DIFFERENT]]
    assert len({each.digest for each in keys}) == len(DIFFERENT) + 1


def test_a_named_argument_and_its_property_are_one_option() -> None:
    assert key(OpenVino(threads=2)) == key(OpenVino(options={"INFERENCE_NUM_THREADS": 2}))


def test_the_order_of_options_is_not_in_the_key() -> None:
    one = OpenVino(options={"PERF_COUNT": True, "ENABLE_CPU_PINNING": False})
    other = OpenVino(options={"ENABLE_CPU_PINNING": False, "PERF_COUNT": True})
    assert key(one) == key(other)


def test_a_bypassed_cache_folder_is_not_in_the_key() -> None:
    assert key(OpenVino(options={"CACHE_DIR": "/a", "CACHE_MODE": "OPTIMIZE_SIZE"})) == key(
        OpenVino()
    )


def test_the_environment_that_openvino_reads_is_in_the_key_and_the_rest_is_not() -> None:
    plain = key(OpenVino())
    assert key(OpenVino(), OV_CPU_MAX_ISA="AVX2") != plain
    assert key(OpenVino(), HOME="/somewhere", HOSTNAME="pod-7") == plain


def test_an_extension_is_identified_by_content(tmp_path: Path) -> None:
    first, same, other = (tmp_path / name for name in ("a.so", "b.so", "c.so"))
    first.write_bytes(b"one")
    same.write_bytes(b"one")
    other.write_bytes(b"two")
    keys = [key(OpenVino(extensions=[path])) for path in (first, same, other)]
    assert keys[0] == keys[1] != keys[2]
    assert keys[0] != key(OpenVino())


def test_facts_name_version_record_and_core_libraries() -> None:
    facts = OpenVino().facts()
    names = " ".join(facts.libraries)
    assert facts.version.startswith("openvino 20")
    assert len(facts.record) == 64
    assert "libopenvino_intel_cpu_plugin" in names
    assert "libopenvino_onnx_frontend" in names


def test_facts_of_a_missing_openvino_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.plans.installed.locate", lambda *_: None)
    with pytest.raises(MissingExtra, match=r"trivet\[openvino\]"):
        OpenVino().facts()


def test_a_property_unknown_to_the_installed_version_is_an_error_before_anything_is_compiled() -> (
    None
):
    backend = OpenVino(options={"INFERENCE_NUM_THREAD": 2})
    with pytest.raises(BackendError, match="does not know INFERENCE_NUM_THREAD") as raised:
        backend.warm_import()
    assert backend.classify(raised.value) is FailureKind.DETERMINISTIC


def test_lint_finds_an_unknown_property_without_loading_openvino() -> None:
    found = OpenVino(options={"INFERENCE_NUM_THREAD": 2, "NUM_STREAMS": 1}).lint()
    assert [(each.code, each.severity) for each in found] == [("unknown-property", "error")]
    assert "INFERENCE_NUM_THREAD " in found[0].message


def test_lint_knows_every_property_of_the_installed_version() -> None:
    supported = [
        str(name) for name in load_runtime().Core().get_property("CPU", "SUPPORTED_PROPERTIES")
    ]
    settable = {"WEIGHTS_PATH", "ENABLE_WEIGHTLESS", "DEVICE_ID", "SUPPORTED_PROPERTIES"}
    options = {name: 1 for name in supported if name not in settable}
    assert len(options) > 20
    assert unknown_properties(options, supported) == []
    assert OpenVino(options=options).lint() == []


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"CACHE_DIR": "/var/cache/openvino"}, "option-bypassed"),
        ({"CACHE_MODE": "OPTIMIZE_SIZE"}, "option-bypassed"),
        ({"ENABLE_MMAP": False}, "mmap-off"),
        ({"ENABLE_MMAP": "NO"}, "mmap-off"),
    ],
)
def test_lint_names_options_that_work_against_the_cache(options: dict[str, Any], code: str) -> None:
    found = OpenVino(options=options).lint()
    assert [each.code for each in found] == [code]
    assert next(iter(options)) in found[0].message


def test_lint_has_nothing_to_say_about_plain_options() -> None:
    assert OpenVino(threads=2, streams=1, hint="latency", precision="f32").lint() == []


def test_lint_says_when_openvino_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trivet.plans.backends.openvino.locate", lambda module: None)
    assert [each.code for each in OpenVino().lint()] == ["not-installed"]


def test_only_onnx_and_ir_files_are_accepted() -> None:
    backend = OpenVino()
    accepted = [backend.accepts(Path(name)) for name in ("m.onnx", "m.ONNX", "m.xml", "m.bin")]
    assert accepted == [True, True, True, False]


TRANSIENT = [
    MemoryError(),
    OSError(28, "No space left on device"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("Could not open the file: model.onnx"),
    MissingExtra("openvino is not installed"),
    KeyboardInterrupt(),
    AssertionError(),
]
DETERMINISTIC = [
    RuntimeError("No conversion rule found for operations: custom.Op"),
    RuntimeError("Wrong value for property key NUM_STREAMS"),
    BackendError("does not know FOO"),
    TypeError("incompatible function arguments"),
]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(each, FailureKind.TRANSIENT) for each in TRANSIENT]
    + [(each, FailureKind.DETERMINISTIC) for each in DETERMINISTIC],
    ids=repr,
)
def test_only_failures_that_would_repeat_are_deterministic(
    error: BaseException, kind: FailureKind
) -> None:
    assert OpenVino().classify(error) is kind


def test_tolerance_is_tight_only_where_inference_is_known_to_run_in_32_bits() -> None:
    exact, loose = OpenVino(precision="f32").tolerance(), OpenVino(precision="bf16").tolerance()
    assert exact < loose
    assert OpenVino().tolerance() == loose


@pytest.mark.parametrize(
    ("text", "value"), [("2", 2), ("YES", True), ("no", False), ("LATENCY", "LATENCY")]
)
def test_an_option_as_text_is_the_option_as_a_value(text: str, value: object) -> None:
    as_text = OpenVino(options={"SOME_PROPERTY": text}).key_fields(read_host({}))
    as_value = OpenVino(options={"SOME_PROPERTY": value}).key_fields(read_host({}))
    assert as_text == as_value
    assert type(as_text["properties"]["SOME_PROPERTY"]) is type(value)  # type: ignore[index,call-overload]
