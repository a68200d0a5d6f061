"""The zip file that PyTorch calls a PT2 archive: its records by name, as ranges of the file.

Only what PyTorch writes is read: records stored as they are, each name once. So a range of the file
is a record's content, and no reader can take another one for it.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from typing import Any

from trivet.errors import ModelError
from trivet.plans.graph.files import Files, Reader

_LOCAL = struct.Struct("<4s5H3L2H")
_MAX_JSON = 1 << 30
_CHUNK = 1 << 20


class Archive:
    """The records of the archive that is the main file of ``files``, without the root folder.

    Attributes:
        records: name to offset of its first byte and of the one after its last.

    Raises `ModelError` when it is no such archive, or names a record twice.
    """

    def __init__(self, files: Files) -> None:
        self.reader = files.main
        try:
            with zipfile.ZipFile(io.BufferedReader(_File(self.reader))) as found:
                entries = found.infolist()
        except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, ValueError) as error:
            raise ModelError(f"{self.reader.path!r} is no PT2 archive: {error}") from error
        roots = {each.filename.partition("/")[0] for each in entries}
        self.records: dict[str, tuple[int, int]] = {}
        for each in entries:
            name = each.filename.partition("/")[2]
            if len(roots) != 1 or not name or name in self.records:
                raise ModelError(f"{self.reader.path!r} is malformed: {each.filename!r}")
            if each.compress_type != zipfile.ZIP_STORED or each.compress_size != each.file_size:
                raise ModelError(
                    f"{self.reader.path!r} is compressed", hint="save it with torch.export.save"
                )
            self.records[name] = self._range(each)
        if "archive_format" not in self.records or self.content("archive_format") != b"pt2":
            raise ModelError(
                f"{self.reader.path!r} is no PT2 archive", hint="save it with torch.export.save"
            )

    def content(self, name: str) -> bytes:
        """A record's content, at most 1 GiB. Raises `ModelError` when there is no such record."""
        start, end = self.range(name)
        if end - start > _MAX_JSON:
            raise ModelError(f"{name!r} in {self.reader.path!r} has {end - start} bytes")
        return b"".join(bytes(piece) for piece in self.reader.chunks(start, end))

    def range(self, name: str) -> tuple[int, int]:
        """Where a record lies. Raises `ModelError` when there is none of this name."""
        found = self.records.get(name)
        if found is None:
            raise ModelError(f"{self.reader.path!r} has no {name!r}")
        return found

    def json(self, name: str) -> Any:
        """A record that is a JSON document. Raises `ModelError` when it is none."""
        try:
            return json.loads(self.content(name))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{name!r} in {self.reader.path!r} is malformed: {error}") from error

    def digest(self, name: str) -> bytes:
        """BLAKE3 of a record's content."""
        return self.reader.digest(*self.range(name))

    def _range(self, entry: zipfile.ZipInfo) -> tuple[int, int]:
        first = entry.header_offset
        if first + _LOCAL.size > self.reader.size:
            raise ModelError(f"{self.reader.path!r} ends before {entry.filename!r}")
        head = _LOCAL.unpack(self.reader.read(first, first + _LOCAL.size))
        start = first + _LOCAL.size + head[-2] + head[-1]
        end = start + entry.file_size
        if head[0] != b"PK\x03\x04" or end > self.reader.size:
            raise ModelError(f"{self.reader.path!r} is malformed at {entry.filename!r}")
        return start, end


class _File(io.RawIOBase):
    """A `Reader` as the file object that `zipfile` wants."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._reader.size}[whence]
        if base + offset < 0:
            raise ValueError("negative offset")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + min(len(buffer), _CHUNK), self._reader.size)
        if end <= self._at:
            return 0
        data = self._reader.read(self._at, end)
        buffer[: len(data)] = data
        self._at = end
        return len(data)
