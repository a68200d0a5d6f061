"""Damage as disks do it."""

from __future__ import annotations

from pathlib import Path


def flip_bit(path: Path, position: int | None = None) -> None:
    """Flip a bit of the byte at ``position``, by default in the middle, in place."""
    path.chmod(0o600)
    with path.open("r+b") as file:
        at = path.stat().st_size // 2 if position is None else position
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))
