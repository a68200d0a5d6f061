"""Damage as disks do it."""

from __future__ import annotations

from pathlib import Path

from trivet.cache import Miss
from trivet.events import MissReason
from trivet.plans import Plans


def flip_bit(path: Path, position: int | None = None) -> None:
    """Flip a bit of the byte at ``position``, by default in the middle, in place."""
    path.chmod(0o600)
    with path.open("r+b") as file:
        at = path.stat().st_size // 2 if position is None else position
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def expect_flips_found(plans: Plans, model: Path, file: Path) -> None:
    """A flipped bit anywhere in ``file``, of the model's one plan, makes a look-up miss."""
    size = file.stat().st_size
    for position in range(0, size, size // 63):
        flip_bit(file, position)
        (lookup,) = plans.find(model)
        assert isinstance(lookup.found, Miss), position
        assert lookup.found.reason is MissReason.CORRUPT
        flip_bit(file, position)
    assert not isinstance(plans.find(model)[0].found, Miss)
