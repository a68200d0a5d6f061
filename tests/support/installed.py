"""Frameworks as they might be installed: another version, or one that crashes or hangs."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

CRASHES = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
HANGS = "import signal; signal.pause()"


def as_version(folder: Path, name: str, version: str) -> Path:
    """A folder for ``sys.path`` from which the installed package ``name`` is of another version."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    folder.mkdir()
    (folder / name).symlink_to(Path(spec.origin).parent)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    files = metadata.distribution(name).read_text("RECORD")
    assert files is not None
    (info / "RECORD").write_text(files)
    return folder


def that_does(folder: Path, name: str, code: str) -> Path:
    """A folder for ``sys.path`` with a framework that does ``code`` when it is imported."""
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    (package / "libcore.so").write_bytes(b"code")
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(f"{name}/libcore.so,sha256=0,4\n")
    return folder
