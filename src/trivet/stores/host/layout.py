"""Where things lie in the cache folder, and the file that says what the folder is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from xxhash import xxh3_64_hexdigest

from trivet.errors import StoreUnavailable
from trivet.stores.host.disk import make_folder, write_file

if TYPE_CHECKING:
    from trivet.stores.host.records import Pointer

FORMAT = 1
_TAG = b"""Signature: 8a477f597d28d172789f06886806bc55
# This folder is a cache made by Trivet. It can be removed at any time.
# About cache directory tags: https://bford.info/cachedir/
"""
_FOLDERS = ("objects", "artifacts", "staging", "trash", "quarantine", "running")


class Layout:
    """The paths below one cache folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.index = root / "index"
        self.data = self.index / "data.mdb"
        self.objects = root / "objects"
        self.artifacts = root / "artifacts"
        self.staging = root / "staging"
        self.trash = root / "trash"
        self.quarantine = root / "quarantine"
        self.running = root / "running"
        self.lock = root / "lock"
        self.format = root / "format.json"
        self.generation = root / "generation"
        self.epochs = root / "epochs"

    def create(self) -> None:
        """Make what is missing, except the index; the root exists."""
        for name in _FOLDERS:
            make_folder(self.root / name)
        tag = self.root / "CACHEDIR.TAG"
        if not tag.exists():
            write_file(tag, _TAG, self.staging / f"tag.{os.urandom(4).hex()}")

    def object_path(self, digest: bytes, nonce: bytes) -> Path:
        """The file of a large value."""
        return _spread(self.objects, digest, nonce)

    def artifact_path(self, digest: bytes, nonce: bytes) -> Path:
        """The folder that holds an artifact's manifest and its folder of files."""
        return _spread(self.artifacts, digest, nonce)


def _spread(top: Path, digest: bytes, nonce: bytes) -> Path:
    name = digest.hex()
    return Path(f"{top}/{name[:2]}/{name}.{nonce.hex()}")


def parse_name(name: str) -> tuple[bytes, bytes] | None:
    """Digest and nonce from the name of an object or artifact; None if it isn't one."""
    left, dot, right = name.partition(".")
    try:
        digest, nonce = bytes.fromhex(left), bytes.fromhex(right)
    except ValueError:
        return None
    return (digest, nonce) if dot and digest and len(nonce) == 8 else None


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """What ``format.json`` says.

    Attributes:
        version: format number of the folder.
        folder: random id, made with the folder.
        map_size: bytes of address space that every process reserves for the index.
        boot: id of the boot in which the index was last written.
        clean: whether all of the index had reached the disk when its last user left.
    """

    version: int = FORMAT
    folder: str
    map_size: int
    boot: str
    clean: bool


class _Checked(msgspec.Struct, frozen=True):
    format: Format
    check: str


def read_format(layout: Layout) -> Format | None:
    """The folder's format; None when it is missing or damaged.

    Raises `StoreUnavailable` for the format of a later release.
    """
    try:
        found = msgspec.json.decode(layout.format.read_bytes(), type=_Checked)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    if found.check != _check(found.format):
        return None
    if found.format.version != FORMAT:
        raise StoreUnavailable(
            f"{layout.root} has format {found.format.version}, this release uses {FORMAT}",
            hint="upgrade, or choose another folder",
        )
    return found.format


def write_format(layout: Layout, facts: Format) -> None:
    """Replace ``format.json``, durably."""
    raw = msgspec.json.encode(_Checked(facts, _check(facts)))
    write_file(layout.format, raw, layout.staging / f"format.{os.urandom(4).hex()}")


def _check(facts: Format) -> str:
    return str(xxh3_64_hexdigest(msgspec.json.encode(facts)))


def boot_id() -> str:
    """The id of this boot of the machine; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def path_of(layout: Layout, digest: bytes, where: Pointer) -> Path:
    """The file or folder that a pointer names."""
    if where.is_artifact:
        return layout.artifact_path(digest, where.nonce)
    return layout.object_path(digest, where.nonce)
