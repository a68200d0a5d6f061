"""Reading model files: in windows, streamed into hashers, and checked for change meanwhile.

Files are read, never mapped: a mapped file that somebody truncates kills the process (SIGBUS).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from blake3 import blake3

from trivet.errors import ModelError
from trivet.plans.model import SourceFile

MARGIN = 20  # the longest head of a protobuf field, and then some
_JUMP = 4 << 10  # read after a jump: most heads of tensors need no more
_STRIDE = 64 << 10  # read when going on where the last window ended
_CHUNK = 1 << 20
_LARGE = 1 << 30  # more than this is not read at once by the kernel
_MAX_REHASH = 8  # ranges that overlap may be hashed this often before the model is refused

Window = tuple[bytes, int, int]  # bytes, offset of the first, offset after the last


class FileChanged(ModelError):
    """A file is not what it was when it was opened."""


class Reader:
    """One open file. Offsets and sizes are in bytes.

    Raises `ModelError` when the file can't be read, `FileChanged` when it ends before its size.
    """

    def __init__(self, path: str, buffer: bytearray) -> None:
        self.path = path
        # Non-blocking, so that a named pipe is refused instead of waited for.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._descriptor = os.open(path, flags)
        except (OSError, ValueError) as error:
            raise ModelError(f"can't open {path!r}: {error}") from error
        self.source = source_file(path, os.fstat(self._descriptor))
        self.size = self.source.size
        self._buffer = memoryview(buffer)
        self._window: Window = (b"", 0, 0)
        self._digests: dict[tuple[int, int], bytes] = {}  # of long ranges

    def close(self) -> None:
        """Close the file; a closed reader can't be used again."""
        os.close(self._descriptor)

    def window(self, offset: int, needed: int = MARGIN) -> Window:
        """Bytes around ``offset``, the ``needed`` ones from there on among them, or all that are
        left; `MARGIN` zeros follow the file's end."""
        _, first, last = window = self._window
        if first <= offset and (offset + needed <= last or (offset <= last == self.size)):
            return window
        ahead = _STRIDE if first <= offset <= last else _JUMP
        data = self.read(offset, min(offset + max(ahead, needed + _JUMP), self.size))
        last = offset + len(data)
        if last == self.size:
            data += bytes(MARGIN)
        self._window = (data, offset, last)
        return self._window

    def read(self, start: int, end: int) -> bytes:
        """The bytes of a range that lies within the file: a name, or so; at most 1 MiB."""
        data, first, last = self._window
        if first <= start and end <= last:
            return data[start - first : end - first]
        if end - start > _CHUNK:
            raise ModelError(
                f"{self.path!r} is malformed at byte {start}: a name of {end - start} bytes"
            )
        try:
            data = os.pread(self._descriptor, end - start, start)
        except OSError as error:
            raise ModelError(f"can't read {self.path!r}: {error}") from error
        if len(data) != end - start:
            raise FileChanged(f"{self.path!r} became shorter while it was being read")
        return data

    def chunks(self, start: int, end: int) -> Iterator[memoryview]:
        """The bytes of a range, piece by piece; each piece is valid until the next is taken."""
        while start < end:
            piece = self._buffer[: min(_CHUNK, end - start)]
            try:
                count = os.preadv(self._descriptor, [piece], start)
            except OSError as error:
                raise ModelError(f"can't read {self.path!r}: {error}") from error
            if count == 0:
                raise FileChanged(f"{self.path!r} became shorter while it was being read")
            yield piece[:count]
            start += count

    def read_into(self, start: int, memory: memoryview) -> None:
        """Fill ``memory`` with the bytes from ``start`` on."""
        done = 0
        while done < len(memory):
            try:
                count = os.preadv(self._descriptor, [memory[done : done + _LARGE]], start + done)
            except OSError as error:
                raise ModelError(f"can't read {self.path!r}: {error}") from error
            if count == 0:
                raise FileChanged(f"{self.path!r} became shorter while it was being read")
            done += count

    def digest(self, start: int, end: int) -> bytes:
        """BLAKE3 of a range; a long one is hashed once however often it is asked for."""
        data, first, last = self._window
        if first <= start and end <= last:
            return blake3(data[start - first : end - first]).digest()
        if end - start <= _STRIDE:  # what follows is likely to be wanted next
            data, first, _ = self.window(start, end - start)
            return blake3(memoryview(data)[start - first : end - first]).digest()
        known = self._digests.get((start, end))
        if known is not None:
            return known
        # One thread: the pool behind max_threads does not survive a fork, and a child would hang.
        hasher = blake3()
        for piece in self.chunks(start, end):
            hasher.update(piece)
        digest = self._digests[start, end] = hasher.digest()
        return digest


class Files:
    """The files of one model: opened once each, remembered as they were before the first byte.

    Use as a context manager.
    """

    def __init__(self, model: str) -> None:
        self._buffer = bytearray(_CHUNK)
        self.main = Reader(model, self._buffer)
        self.sources: dict[str, SourceFile] = {model: self.main.source}
        self._other: Reader | None = None
        self._beside: dict[str, str] = {}
        self._ranges: dict[tuple[str, int, int], bytes] = {}
        self._hashed = 0

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.main.close()
        if self._other is not None:
            self._other.close()

    def beside(self, location: str) -> str:
        """The path of a data file that the model names, relative to the model's folder.

        It must stay below the folder of the model as named, or below the folder in which the model
        really lies. So a download cache whose model and data are links into one folder of blobs
        works, and a link or a ``..`` to anywhere else is refused; ONNX Runtime does the same.
        """
        if location in self._beside:
            return self._beside[location]
        folder = os.path.dirname(self.main.path)
        if not location or os.path.isabs(location) or "\0" in location:
            raise ModelError(f"external data location {location!r} is not a relative path")
        path = os.path.join(folder, location)
        real = os.path.realpath(path)
        roots = {os.path.realpath(folder), os.path.dirname(os.path.realpath(self.main.path))}
        if not any(real.startswith(root.rstrip("/") + "/") for root in roots):
            raise ModelError(f"external data {location!r} lies outside the model's folder")
        self._beside[location] = path
        return path

    def open(self, path: str) -> Reader:
        """A reader of another file; it is closed when the next one is opened."""
        if self._other is None or self._other.path != path:
            reader = Reader(path, self._buffer)
            if self._other is not None:
                self._other.close()
            self._other = reader
            if self.sources.setdefault(path, reader.source) != reader.source:
                raise FileChanged(f"{path!r} was replaced while the model was being read")
        return self._other

    def range_digest(self, path: str, offset: int, size: int) -> bytes:
        """BLAKE3 of ``size`` bytes at ``offset``, hashed once however often it is asked for."""
        known = self._ranges.get((path, offset, size))
        if known is not None:
            return known
        reader = self.open(path)
        if offset + size > reader.size:
            raise ModelError(
                f"{path!r} has {reader.size} bytes, but the model wants {size} at {offset}"
            )
        self._hashed += size
        if self._hashed > _MAX_REHASH * sum(each.size for each in self.sources.values()):
            raise ModelError(f"the model refers to the same bytes of {path!r} too often")
        digest = self._ranges[path, offset, size] = reader.digest(offset, offset + size)
        return digest

    def changed(self) -> bool:
        """Whether any file is not, under its path, what was opened."""
        return not all(matches(each) for each in self.sources.values())


def source_file(path: str, found: os.stat_result) -> SourceFile:
    """What ``stat`` says of a regular file; anything else is a `ModelError`."""
    if not stat.S_ISREG(found.st_mode):
        raise ModelError(f"{path!r} is not a regular file")
    return SourceFile(
        path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    )


def matches(source: SourceFile) -> bool:
    """Whether the file is still there and looks as it did."""
    try:
        found = os.stat(source.path)
    except (OSError, ValueError):
        return False
    return (
        found.st_ino == source.inode
        and found.st_ctime_ns == source.ctime_ns
        and found.st_mtime_ns == source.mtime_ns
        and found.st_size == source.size
        and found.st_dev == source.device
    )
