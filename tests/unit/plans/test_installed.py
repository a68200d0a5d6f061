"""Frameworks as installed: found without importing, identified by content."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3
from tests.support.memos import DictMemo
from tests.support.onnx_models import let_time_pass

from trivet.errors import BackendError, MissingExtra
from trivet.plans import installed
from trivet.plans.backend import BackendFacts
from trivet.plans.facts.onnxruntime import PACKAGE as ONNXRUNTIME
from trivet.plans.facts.openvino import PACKAGE as OPENVINO
from trivet.plans.installed import Package, file_digest, installed_facts

FAKE = Package(
    module="fakeframe",
    distributions=("fakeframe", "fakeframe-gpu"),
    libraries=("capi/core*.so",),
    extra="fake",
)
LATER = 3_000_000_000  # nanoseconds; past the time in which a file counts as too new


def later() -> int:
    return time.time_ns() + LATER


def install(
    site: Path, version: str = "1.0", content: bytes = b"core", name: str = "fakeframe"
) -> Path:
    """A wheel's worth of files in ``site``."""
    package = site / "fakeframe"
    (package / "capi").mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "capi" / "core.so").write_bytes(content)
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(
        "fakeframe/__init__.py,sha256=abc,24\n"
        f"fakeframe/capi/core.so,sha256={blake3(content).hexdigest()[:8]},4\n"
        f"{info.name}/RECORD,,\n"
    )
    return package


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder at the front of ``sys.path``."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


def facts(memo: DictMemo | None = None) -> BackendFacts:
    return installed_facts(FAKE, memo)


def test_version_record_and_libraries_are_found_without_an_import(site: Path) -> None:
    install(site)
    found = facts()
    assert found.version == "fakeframe 1.0"
    assert found.libraries == {"capi/core.so": blake3(b"core").hexdigest()}
    assert len(found.record) == 64
    assert "fakeframe" not in sys.modules


@pytest.mark.parametrize("package", [ONNXRUNTIME, OPENVINO], ids=lambda each: each.module)
def test_the_real_frameworks_are_found_without_an_import(package: Package) -> None:
    script = f"""
        import sys
        from trivet.plans.facts.{package.module} import PACKAGE as package
        from trivet.plans.installed import installed_facts
        facts = installed_facts(package)
        assert facts.record and facts.version.startswith(package.module + " "), facts
        assert not {{"numpy", package.module}} & set(sys.modules)
        print(*facts.libraries)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    names = result.stdout.split()
    # Every glob found something, so the wheel's layout is the one that is known.
    assert len(names) < 12
    assert any("onnxruntime_pybind11_state" in n or "intel_cpu_plugin" in n for n in names)


def test_a_missing_framework_names_the_command_that_installs_it(site: Path) -> None:
    with pytest.raises(MissingExtra) as caught:
        facts()
    assert caught.value.hint == "pip install 'trivet[fake]'"


def test_a_left_over_folder_is_not_an_installation(site: Path) -> None:
    (site / "fakeframe" / "__pycache__").mkdir(parents=True)
    with pytest.raises(MissingExtra):
        facts()


def test_of_two_versions_side_by_side_the_one_that_would_be_imported_counts(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "1.0", b"old")
    other = tmp_path / "other"
    other.mkdir()
    install(other, "2.0", b"new")
    monkeypatch.setattr(sys, "path", [*sys.path, str(other)])
    assert facts().version == "fakeframe 1.0"
    monkeypatch.setattr(sys, "path", [str(other), *sys.path])
    assert facts().version == "fakeframe 2.0"
    assert facts().libraries["capi/core.so"] == blake3(b"new").hexdigest()


def test_a_patched_library_of_the_same_version_is_another_framework(site: Path) -> None:
    package = install(site)
    before = facts()
    (package / "capi" / "core.so").write_bytes(b"c0re")
    after = facts()
    assert after.version == before.version
    assert after.libraries != before.libraries


def test_another_wheel_of_the_same_version_has_another_record(site: Path) -> None:
    install(site)
    before = facts().record
    record = site / "fakeframe-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("sha256=abc", "sha256=abd"))
    assert facts().record != before


def test_who_looked_at_a_package_before_it_was_replaced_is_told(site: Path) -> None:
    """A process that compiles imports what is there now, whatever the key says."""
    package = install(site)
    known = installed.Installed(FAKE)
    known.require_unchanged()  # nothing was looked at
    known.facts()
    known.require_unchanged()
    (package / "capi" / "core.so").write_bytes(b"patched")
    with pytest.raises(OSError, match="installed anew"):
        known.require_unchanged()


def test_what_installers_add_to_the_record_does_not_count(site: Path) -> None:
    install(site)
    before = facts().record
    record = site / "fakeframe-1.0.dist-info" / "RECORD"
    lines = record.read_text().splitlines()
    more = [
        "fakeframe/__pycache__/__init__.cpython-311.pyc,,",
        "fakeframe-1.0.dist-info/INSTALLER,sha256=xyz,4",
        "../../../bin/fake,sha256=uvw,200",
    ]
    record.write_text("\n".join([*more, *reversed(lines)]))
    assert facts().record == before


def test_two_distributions_in_one_folder_both_count(site: Path) -> None:
    install(site)
    install(site, "1.1", name="fakeframe-gpu")
    assert facts().version == "fakeframe 1.0, fakeframe-gpu 1.1"


def test_a_build_without_metadata_is_identified_by_its_libraries(site: Path) -> None:
    package = install(site)
    for path in (site / "fakeframe-1.0.dist-info").iterdir():
        path.unlink()
    (site / "fakeframe-1.0.dist-info").rmdir()
    found = facts()
    assert (found.version, found.record) == ("unknown", "")
    assert found.libraries == {"capi/core.so": blake3(b"core").hexdigest()}
    assert package.is_dir()


def test_an_editable_install_has_its_version_from_elsewhere_on_the_path(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    info = (site / "fakeframe-1.0.dist-info").rename(elsewhere / "fakeframe-1.0.dist-info")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fakeframe\nVersion: 1.0+local\n")
    monkeypatch.syspath_prepend(elsewhere)
    assert (facts().version, facts().record) == ("fakeframe 1.0+local", "")


def test_a_framework_that_is_loaded_counts_where_it_was_loaded_from(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = tmp_path / "loaded"
    loaded.mkdir()
    package = install(loaded, "0.9", b"loaded")
    module = types.ModuleType("fakeframe")
    module.__file__ = str(package / "__init__.py")
    monkeypatch.setitem(sys.modules, "fakeframe", module)
    install(site, "1.0", b"later on the disk")
    assert facts().version == "fakeframe 0.9"
    assert facts().libraries["capi/core.so"] == blake3(b"loaded").hexdigest()


def test_in_an_unknown_layout_every_shared_library_counts(site: Path) -> None:
    package = install(site)
    (package / "capi" / "core.so").rename(package / "libother.so.7")
    (package / "deep").mkdir()
    (package / "deep" / "x.so").write_bytes(b"x")
    assert sorted(facts().libraries) == ["deep/x.so", "libother.so.7"]


def test_a_framework_without_any_library_has_no_identity(site: Path) -> None:
    package = install(site)
    (package / "capi" / "core.so").unlink()
    with pytest.raises(BackendError, match="no shared libraries"):
        facts()


def test_two_wheels_within_one_namespace_count_whole(site: Path) -> None:
    """Such as IREE's, whose top-level folder has no ``__init__.py``."""
    package = Package(
        module="fakespace.runtime",
        distributions=("fake-compiler", "fake-runtime"),
        libraries=("compiler/core*.so", "runtime/core*.so"),
        extra="fake",
    )
    for name in ("compiler", "runtime"):
        part = site / "fakespace" / name
        part.mkdir(parents=True)
        (part / "__init__.py").touch()
        (part / "core.so").write_bytes(name.encode())
        info = site / f"fake_{name}-1.0.dist-info"
        info.mkdir()
        (info / "RECORD").write_text(f"fakespace/{name}/core.so,sha256=abc,4\n")
    before = installed_facts(package)
    assert before.version == "fake-compiler 1.0, fake-runtime 1.0"
    assert sorted(before.libraries) == ["compiler/core.so", "runtime/core.so"]
    (site / "fake_compiler-1.0.dist-info" / "RECORD").write_text("fakespace/x.py,sha256=abd,4\n")
    assert installed_facts(package).record != before.record


def test_pure_python_is_told_by_its_record_alone(site: Path) -> None:
    package = Package(module="fakeframe", distributions=("fakeframe",), libraries=(), extra="fake")
    install(site)
    found = installed_facts(package)
    assert (found.libraries, len(found.record)) == ({}, 64)
    (site / "fakeframe-1.0.dist-info" / "RECORD").unlink()
    with pytest.raises(BackendError, match="no record of its files"):
        installed_facts(package)


def test_facts_do_not_depend_on_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        install(folder)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [str(folder), *sys.path])
            found.append(facts())
    assert found[0] == found[1]


def rewrite_in_place(path: Path) -> None:
    path.write_bytes(b"CORE")


def replace_by_rename(path: Path) -> None:
    path.with_suffix(".new").write_bytes(b"CORE")
    path.with_suffix(".new").rename(path)


def rewrite_with_old_times(path: Path) -> None:
    stat = path.stat()
    path.write_bytes(b"CORE")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_an_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "core.so"
    path.write_bytes(b"core")
    memo = DictMemo()
    assert file_digest(path, memo, now_ns=later) == blake3(b"core").hexdigest()

    def unexpected(file: object) -> bytes:
        raise AssertionError("the file was read again")

    monkeypatch.setattr(installed, "_hash", unexpected)
    assert file_digest(path, memo, now_ns=later) == blake3(b"core").hexdigest()


@pytest.mark.parametrize("change", [rewrite_in_place, replace_by_rename, rewrite_with_old_times])
def test_a_changed_file_is_read_again(change: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "core.so"
    path.write_bytes(b"core")
    memo = DictMemo()
    file_digest(path, memo, now_ns=later)
    change(path)
    assert file_digest(path, memo, now_ns=later) == blake3(b"CORE").hexdigest()


def test_a_file_that_has_just_been_written_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "core.so"
    path.write_bytes(b"core")
    memo = DictMemo()
    file_digest(path, memo)
    assert not memo
    file_digest(path, memo, now_ns=lambda: path.stat().st_ctime_ns - LATER)  # the clock went back
    assert not memo
    file_digest(path, memo, now_ns=later)
    assert len(memo) == 1


def test_a_memo_that_holds_rubbish_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "core.so"
    path.write_bytes(b"core")
    memo = DictMemo()
    file_digest(path, memo, now_ns=later)
    for key in memo:
        memo[key] = b"short"
    assert file_digest(path, memo, now_ns=later) == blake3(b"core").hexdigest()


@pytest.mark.parametrize("change", [rewrite_in_place, replace_by_rename, rewrite_with_old_times])
def test_who_waited_for_another_takes_the_digest_of_the_file_as_it_is_then(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "core.so"
    path.write_bytes(b"core")
    memo = DictMemo()

    def meanwhile() -> None:
        assert file_digest(path, memo, now_ns=later) == blake3(b"core").hexdigest()
        let_time_pass(path)
        change(path)

    memo.meanwhile = meanwhile
    assert file_digest(path, memo, now_ns=later) == blake3(b"CORE").hexdigest()


def test_who_waited_for_another_does_not_read_the_file_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "core.so"
    path.write_bytes(b"core")
    memo = DictMemo()

    def meanwhile() -> None:
        file_digest(path, memo, now_ns=later)
        monkeypatch.setattr(installed, "_hash", None)  # who calls it, fails

    memo.meanwhile = meanwhile
    assert file_digest(path, memo, now_ns=later) == blake3(b"core").hexdigest()


def test_a_file_that_keeps_changing_has_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "core.so"
    path.write_bytes(b"core")
    original = installed._hash

    def changing(file: io.FileIO) -> bytes:
        digest = original(file)
        with path.open("ab") as other:
            other.write(b"+")
        return digest

    monkeypatch.setattr(installed, "_hash", changing)
    with pytest.raises(BackendError, match="keeps changing"):
        file_digest(path, DictMemo(), now_ns=later)
