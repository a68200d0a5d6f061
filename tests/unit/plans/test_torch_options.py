"""Options of the PyTorch backend: what is refused, and what enters the key. Without PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from trivet.errors import BackendError, MissingExtra
from trivet.keys import Key
from trivet.plans.backend import FailureKind, has_external_weights
from trivet.plans.backends import OnnxRuntime, Torch
from trivet.plans.host import HostFacts


def key(backend: Torch, libc: str = "glibc-2.36", **environment: str) -> Key:
    host = HostFacts(
        system="linux",
        machine="x86_64",
        instruction_set=("avx2",),
        libc=libc,
        environment=environment,
    )
    return Key("test/1", backend.key_fields(host))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"threads": 0}, "threads is a number from 1"),
    ({"threads": True}, "threads is a number from 1"),
    ({"options": {"freezing": True}}, "bakes weights"),
    ({"options": {"no_such_setting": True}}, "not an Inductor setting"),
    ({"options": {"aot_inductor.package_constants_in_so": True}}, "not an Inductor setting"),
    ({"options": {"max_autotune": 1}}, "max_autotune is a bool"),
    ({"custom_ops": "ops.py"}, "sequence of paths"),
    ({"custom_ops": ["/nonexistent/ops.py"]}, "no .py file"),
    ({"custom_ops": [__file__ + "x"]}, "no .py file"),
]


@pytest.mark.parametrize(("arguments", "text"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_cannot_be_honoured_is_refused_by_the_constructor(
    arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(BackendError, match=text):
        Torch(**arguments)


DIFFERENT: list[dict[str, Any]] = [
    {"threads": 1},
    {"threads": 3},
    {"threads": 1, "options": {"max_autotune": True}},
    {"threads": 1, "options": {"max_autotune": False}},
    {"threads": 1, "options": {"cpp.simdlen": 256}},
    {"threads": 1, "custom_ops": [__file__]},
]


def test_every_option_is_in_the_key() -> None:
    assert len({key(Torch(**arguments)).digest for arguments in DIFFERENT}) == len(DIFFERENT)


def test_the_order_of_options_is_not_in_the_key() -> None:
    one = Torch(options={"max_autotune": True, "split_reductions": False})
    other = Torch(options={"split_reductions": False, "max_autotune": True})
    assert key(one) == key(other)


def test_operators_are_identified_by_content(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.py", "b.py", "c.py")]
    for path, text in zip(paths, ("one", "one", "two"), strict=True):
        path.write_text(text)
    first, same, other = (key(Torch(custom_ops=[path])) for path in paths)
    assert first == same != other


def compiler(path: Path, version: str, comment: str = "") -> str:
    """A compiler that says its version, and names itself for every program it is asked for."""
    path.write_text(
        f'#!/bin/sh\n# {comment}\ncase "$1" in --version) echo {version};; *) echo {path};; esac\n'
    )
    path.chmod(0o700)
    return str(path)


def test_the_compiler_is_identified_by_content_and_not_by_place(tmp_path: Path) -> None:
    one = key(Torch(), CXX=compiler(tmp_path / "one", "g++ 12"))["compiler"]
    patched = key(Torch(), CXX=compiler(tmp_path / "two", "g++ 12", "patched"))["compiler"]
    newer = key(Torch(), CXX=compiler(tmp_path / "three", "g++ 13"))["compiler"]
    none = key(Torch(), CXX=str(tmp_path / "nothing"))["compiler"]
    assert len({repr(each) for each in (one, patched, newer, none)}) == 4
    assert str(tmp_path) not in repr(one)


def test_where_any_compiler_will_do_none_is_in_the_key_and_no_failure_is_recorded() -> None:
    backend = Torch(any_compiler=True)
    assert key(backend)["compiler"] == key(backend, CXX="/nothing")["compiler"] == "any"
    assert key(backend) != key(Torch())
    assert backend.classify(BackendError("an unsupported operator")) is FailureKind.TRANSIENT


def test_texts_of_a_command_line_are_what_they_say() -> None:
    texts = {"max_autotune": "true", "cpp.simdlen": "8"}
    assert key(Torch(options=texts)) == key(Torch(options={"max_autotune": True, "cpp.simdlen": 8}))
    for wrong in ({"max_autotune": "8"}, {"cpp.simdlen": "true"}, {"cpp.simdlen": "eight"}):
        with pytest.raises(BackendError):
            Torch(options=wrong)


def test_environment_and_libc_are_in_the_key_and_the_rest_is_not() -> None:
    plain = key(Torch())
    for name in ("ATEN_CPU_CAPABILITY", "TORCHINDUCTOR_MAX_AUTOTUNE", "CFLAGS", "OMP_NUM_THREADS"):
        assert key(Torch(), **{name: "1"}) != plain
    assert key(Torch(), libc="glibc-2.37") != plain
    others = {"HOME": "/x", "HOSTNAME": "pod-7", "TORCHINDUCTOR_CACHE_DIR": "/tmp/x"}
    assert key(Torch(), **others) == plain


def test_only_this_backend_keeps_plans_without_weights() -> None:
    assert has_external_weights(Torch())
    assert not has_external_weights(OnnxRuntime())


def test_what_a_compiler_says_of_the_machine_is_no_verdict() -> None:
    backend = Torch()
    for text in ("CppCompileError: fatal error: No space left on device", "Killed signal"):
        assert backend.classify(BackendError(text)) is FailureKind.TRANSIENT
    assert backend.classify(BackendError("an unsupported operator")) is FailureKind.DETERMINISTIC


def test_without_pytorch_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"trivet\[torch\]"):
        Torch().warm_import()
    monkeypatch.setattr("trivet.plans.installed.locate", lambda *_: None)
    monkeypatch.setattr("trivet.plans.backends.packaged.locate", lambda module: None)
    with pytest.raises(MissingExtra, match=r"trivet\[torch\]"):
        Torch().facts()
    assert [each.code for each in Torch().lint()] == ["not-installed"]


def test_without_a_compiler_the_doctor_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("trivet.plans.backends.packaged.locate", lambda module: tmp_path)
    monkeypatch.setenv("CXX", str(tmp_path / "nothing"))
    assert [each.code for each in Torch().lint()] == ["no-compiler"]
