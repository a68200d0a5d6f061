"""Which files of a framework's folder are complete, and worth keeping.

A process may be killed, and a disk may be full, while a file is written. Frameworks that write to
the final name take what is there for whole: JAX never writes it again, Inductor loads it.
"""

from __future__ import annotations

import ast
import struct
import warnings
import zlib
from pathlib import Path

import msgspec

_PIECE = 1 << 20
_ZSTD = b"\x28\xb5\x2f\xfd"
_CHECKSUM = 4  # bytes
_ELF = b"\x7fELF"


def any_file(path: Path) -> bool:
    """Of a framework that writes beside its files and renames, or whose files nobody knows."""
    return True


def of_jax(path: Path) -> bool:
    """An entry is one frame of zstd, or one stream of zlib, as JAX finds libraries."""
    if not path.name.endswith("-cache"):
        return True
    with path.open("rb") as file:
        head = file.read(len(_ZSTD))
    return _is_zstd_frame(path) if head == _ZSTD else _is_zlib_stream(path)


def of_torch(path: Path) -> bool:
    """Inductor renames what it writes; its C++ compiler writes to the final name."""
    return path.suffix not in (".so", ".o") or _is_linked(path)


def of_vllm(path: Path) -> bool:
    """Beside what Inductor compiled, tables that vLLM parses when it starts, or ends."""
    if path.name == "vllm_compile_cache.py":
        return _parses(path)
    if path.suffix == ".json":
        return _decodes(path)
    return of_torch(path)


def of_neuron(path: Path) -> bool:
    """A module is one that was compiled, not one that failed, or was begun.

    See https://awsdocs-neuron.readthedocs-hosted.com/en/latest/general/arch/neuron-features/neuron-caching.html
    """
    module = path.parent
    if not module.name.startswith("MODULE_"):
        return True
    code = module / "model.neff"
    is_compiled = code.is_file() and code.stat().st_size > 0 and (module / "model.done").is_file()
    return is_compiled and path.name != "model.log"


# -- formats ---------------------------------------------------------------------------------------


def _is_zstd_frame(path: Path) -> bool:
    """Whether the file ends where its frame does: RFC 8878, 3.1.1. Nothing is decompressed."""
    data = path.read_bytes()
    if len(data) < len(_ZSTD) + 1:
        return False
    flags = data[len(_ZSTD)]
    is_single = bool(flags & 0x20)
    content_size = (int(is_single), 2, 4, 8)[flags >> 6]
    dictionary = (0, 1, 2, 4)[flags & 3]
    at = len(_ZSTD) + 1 + int(not is_single) + dictionary + content_size
    while at + 3 <= len(data):
        head = int.from_bytes(data[at : at + 3], "little")
        is_last, kind, size = head & 1, head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == 1 else size)  # a run of one byte is that byte
        if is_last:
            return at + (_CHECKSUM if flags & 4 else 0) == len(data)
    return False


def _is_zlib_stream(path: Path) -> bool:
    stream = zlib.decompressobj()
    try:
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                # What comes out is forgotten, a piece at a time.
                is_full = True
                while is_full and not stream.eof:
                    is_full = len(stream.decompress(piece, _PIECE)) == _PIECE
                    piece = stream.unconsumed_tail
                if stream.eof:
                    return not stream.unused_data and not file.read(1)
    except zlib.error:
        pass
    return False


def _is_linked(path: Path) -> bool:
    """Whether an ELF file has all that its head speaks of: the linker writes that last."""
    with path.open("rb") as file:
        head = file.read(64)
    if len(head) < 64 or not head.startswith(_ELF):
        return False
    order = "<" if head[5] == 1 else ">"
    (sections,) = struct.unpack_from(f"{order}Q", head, 40)
    each, count = struct.unpack_from(f"{order}HH", head, 58)
    end: int = sections + each * count
    return sections > 0 and end <= path.stat().st_size


def _parses(path: Path) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(path.read_bytes(), mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True


def _decodes(path: Path) -> bool:
    try:
        msgspec.json.decode(path.read_bytes())
    except msgspec.MsgspecError:
        return False
    return True
