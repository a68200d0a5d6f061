"""What a folder's key is made of: the process that asks, and what it loaded."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.onnx_models import let_time_pass

from trivet import Cache
from trivet.errors import TrivetError
from trivet.plans.environment import Rules
from trivet.plans.folders import CacheFolder, Interpreter
from trivet.plans.folders.dependencies import Dependencies
from trivet.plans.installed import Package
from trivet.plans.memo import CacheMemo

TOY = CacheFolder(
    name="toy",
    packages=(
        Package(module="toyframe", distributions=("toyframe",), libraries=("c*.so",), extra="toy"),
    ),
    modules=("toyframe",),
    variables={"TOY_CACHE": ""},
    settings={"TOY_KEEP": "all"},
    environment=Rules(
        prefixes=("TOY_",), names=(), neutral={"TOY_CACHE": "where"}, empty_is_unset=frozenset()
    ),
)


def install(site: Path, content: bytes) -> Path:
    package = site / "toyframe"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "core.so").write_bytes(content)
    info = site / "toyframe-1.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("toyframe/core.so,sha256=abc,4\n")
    return package


def python(site: Path, version: str = "3.11") -> Interpreter:
    return Interpreter(
        executable="/venv/bin/python",
        version=version,
        tag="cpython-311",
        path=[str(site)],
        prefix=str(site.parent),
        base="/usr",
    )


@pytest.fixture
def dependencies(tmp_path: Path) -> Iterator[Dependencies]:
    with Cache.open(tmp_path / "c", strict=True) as cache:
        yield Dependencies(
            cache,
            CacheMemo(cache),
            command=(b"serve",),
            inputs={},
            salts={},
            started=time.time_ns() + 3_600_000_000_000,
            cwd=str(tmp_path / "work"),
        )


def test_another_python_has_another_folder(dependencies: Dependencies, tmp_path: Path) -> None:
    """By what is installed in it, not by where it lies."""
    install(tmp_path / "a" / "site", b"one")
    install(tmp_path / "b" / "site", b"one")
    install(tmp_path / "c" / "site", b"two")
    bases = [
        dependencies.basis(TOY, python(tmp_path / name / "site", version), {}, []).base
        for name, version in (("a", "3.11"), ("b", "3.11"), ("c", "3.11"), ("a", "3.12"))
    ]
    assert bases[0] == bases[1]
    assert len({each.digest for each in bases}) == 3


def test_what_the_guard_has_set_itself_does_not_count(
    dependencies: Dependencies, tmp_path: Path
) -> None:
    install(tmp_path / "site", b"one")
    found = {
        name: dependencies.basis(TOY, python(tmp_path / "site"), environment, []).base.digest
        for name, environment in {
            "bare": {},
            "guarded": {"TOY_CACHE": "/run/toy", "TOY_KEEP": "all", "HOME": "/"},
            "changed": {"TOY_KEEP": "some"},
            "unknown": {"TOY_NEW": "1"},
        }.items()
    }
    assert found["bare"] == found["guarded"]
    assert len(set(found.values())) == 3


def test_the_frameworks_own_files_are_in_the_key_already(
    dependencies: Dependencies, tmp_path: Path
) -> None:
    package = install(tmp_path / "site", b"one")
    own = tmp_path / "work" / "op.so"
    own.parent.mkdir()
    own.write_bytes(b"op")
    basis = dependencies.basis(
        TOY, python(tmp_path / "site"), {}, [str(package / "core.so"), str(own)]
    )
    assert basis.names == ["{cwd}/op.so"]
    assert dependencies.own_paths(basis) == [str(own)]


def test_a_changed_file_is_another_key(dependencies: Dependencies, tmp_path: Path) -> None:
    install(tmp_path / "site", b"one")
    own = tmp_path / "op.so"
    keys = []
    for content in (b"one", b"two", b"one"):
        own.write_bytes(content)
        let_time_pass(own)
        basis = dependencies.basis(TOY, python(tmp_path / "site"), {}, [str(own)])
        keys.append(dependencies.key(basis).digest)
    own.unlink()
    keys.append(dependencies.key(basis).digest)
    assert keys[0] == keys[2]
    assert len(set(keys)) == 3


@pytest.mark.parametrize("started", ["before", "after"])
def test_a_file_that_changed_while_the_program_ran_is_not_believed(
    started: str, tmp_path: Path
) -> None:
    install(tmp_path / "site", b"one")
    own = tmp_path / "op.so"
    own.write_bytes(b"op")
    with Cache.open(tmp_path / "c", strict=True) as cache:
        dependencies = Dependencies(
            cache,
            CacheMemo(cache),
            command=(),
            inputs={},
            salts={},
            started=own.stat().st_ctime_ns + (-1 if started == "before" else 3_600_000_000_000),
            cwd=os.getcwd(),
        )
        basis = dependencies.basis(TOY, python(tmp_path / "site"), {}, [])
        if started == "before":
            with pytest.raises(TrivetError, match="changed while the program ran"):
                dependencies.learn(TOY, basis, [str(own)], [])
        else:
            key = dependencies.learn(TOY, basis, [str(own)], [str(own)])
            again = dependencies.basis(TOY, python(tmp_path / "site"), {}, [])
            assert again.names == ["{prefix}/op.so"]
            assert dependencies.key(again) == key
        with pytest.raises(TrivetError, match="is gone"):
            dependencies.learn(TOY, basis, ["/no/such.so (deleted)"], [])
