"""Cutting bytes where their content says so, so that what two files share is cut alike.

FastCDC: Xia and others, "The Design of Fast Content-Defined Chunking for Data Deduplication Based
Storage Systems", 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from blake3 import blake3

from trivet.entries import FileRecord
from trivet.errors import CorruptEntry, MissingExtra

# The format takes any cuts. Others than these would share nothing with the bundles of before.
_LEAST, _USUAL, _MOST = 8 << 10, 32 << 10, 128 << 10


class Chunk(NamedTuple):
    """Bytes, and their BLAKE3. The bytes are valid until the next chunk is asked for."""

    digest: bytes
    data: bytes | memoryview


class Cutter:
    """Cuts bytes and files into chunks; sizes are in bytes, the usual one without the least.

    Raises `MissingExtra` when pyfastcdc is not installed.
    """

    def __init__(self, least: int = _LEAST, usual: int = _USUAL, most: int = _MOST) -> None:
        try:
            from pyfastcdc import FastCDC
        except ImportError as error:
            raise MissingExtra(
                "making bundles needs the package pyfastcdc", hint="pip install 'trivet[bundle]'"
            ) from error
        self._make: Callable[[], Any] = lambda: FastCDC(usual, min_size=least, max_size=most)

    def cut(self, data: bytes) -> Iterator[Chunk]:
        """The chunks of ``data``."""
        for each in self._make().cut_buf(data):
            yield Chunk(blake3(each.data).digest(), each.data)

    def cut_file(self, path: Path, record: FileRecord) -> Iterator[Chunk]:
        """The chunks of the file at ``path``, whose record this is.

        Raises `CorruptEntry` at the end when the file is not what was recorded: then nothing that
        came before must be used. Raises `OSError` when it can't be read.
        """
        whole, size = blake3(), 0
        try:
            with path.open("rb", buffering=0) as file:
                for each in self._make().cut_stream(file):
                    whole.update(each.data)
                    size += each.length
                    yield Chunk(blake3(each.data).digest(), each.data)
        except FileNotFoundError as error:
            raise CorruptEntry(f"{record.name} is missing") from error
        if size != record.size or whole.digest() != record.blake3:
            raise CorruptEntry(f"{record.name} is not what was stored")
