"""A number shared by all processes of the machine that tells them: look again.

Eight words in a mapped file: reading one costs tens of nanoseconds, so live copies can be checked
on every hit.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trivet.stores.host.disk import locked, write_file

_MAGIC = int.from_bytes(b"TRIVGEN1", "little")
_SIZE = 64
_WORD_GENERATION, _WORD_EPOCHS = 1, 2


class Generation:
    """The mapped file. ``words[1]`` is the generation, ``words[2]`` the durable size of the epochs.

    ``file`` is device and inode; a process that holds it mapped keeps the inode from being reused.

    A folder without the file (read-only, and never written since) has generation 0.
    """

    def __init__(self, path: Path, temporary: Callable[[], Path], *, read_only: bool) -> None:
        self._path = path
        if not read_only and not _is_sound(path):
            # Time makes the number differ from that of any folder that was here before.
            words = (_MAGIC, time.time_ns(), 0, 0, 0, 0, 0, 0)
            write_file(path, b"".join(each.to_bytes(8, "little") for each in words), temporary())
        self.words, self.file = _map(path, read_only=read_only)

    @property
    def value(self) -> int:
        """The current generation."""
        return self.words[_WORD_GENERATION]

    @property
    def epochs_size(self) -> int:
        """How many bytes of the epochs' log are known to be durable."""
        return self.words[_WORD_EPOCHS]

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other processes and threads from changing the words."""
        with locked(self._path):
            yield

    def bump(self, *, epochs_size: int | None = None) -> None:
        """Change the generation. Call it inside `exclusive`."""
        if epochs_size is not None:
            self.words[_WORD_EPOCHS] = epochs_size
        self.words[_WORD_GENERATION] += 1

    def outrun(self, other: Generation) -> None:
        """Make the generation higher than that of another file, unless it is."""
        if self.file != other.file and self.value <= other.value:
            with self.exclusive():
                self.words[_WORD_GENERATION] = max(self.value, other.value + 1)


def _is_sound(path: Path) -> bool:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return False
    return len(raw) == _SIZE and int.from_bytes(raw[:8], "little") == _MAGIC


def _map(path: Path, *, read_only: bool) -> tuple[memoryview, tuple[int, int]]:
    """The words, and device and inode of the file that they are in."""
    if read_only and not _is_sound(path):
        return memoryview(bytes(_SIZE)).cast("Q"), (0, 0)
    descriptor = os.open(path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)
    try:
        access = mmap.PROT_READ if read_only else mmap.PROT_READ | mmap.PROT_WRITE
        facts = os.fstat(descriptor)
        words = memoryview(mmap.mmap(descriptor, _SIZE, prot=access)).cast("Q")
        return words, (facts.st_dev, facts.st_ino)
    finally:
        os.close(descriptor)
