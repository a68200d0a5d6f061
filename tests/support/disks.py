"""Small disks that fill up, and folders that other users can reach."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(path: Path, mib: int) -> Iterator[Path]:
    """A disk of so many MiB at ``path``. Needs the right to mount."""
    path.mkdir()
    options = f"size={mib}m,mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> Path:
    """Use up all room, with one file; returns its path."""
    path = disk / "filler"
    with path.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return path


@contextmanager
def reachable() -> Iterator[Path]:
    """A folder that every user may enter; pytest closes its own at the start of each session."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        yield path
