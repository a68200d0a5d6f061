"""Where things lie in a layer.

::

    layer.json                    format, and the ids of the bundles, the newest first
    bundles/<id>/contents         what the bundle said is in it; its BLAKE3 is the id
    bundles/<id>/signature        the bundle's signature; empty where there was none
    bundles/<id>/entries/<digest> a sealed entry
    bundles/<id>/files/<digest>/  the files of an artifact
    staging/                      what is being installed, or removed
    lock                          held by who installs

There is no index and no map that several write, so a layer may lie on any file system.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from trivet.errors import StoreUnavailable, UnsafeFolder
from trivet.stores.host.safety import require_safe_ancestors

FORMAT = 1
_ID = re.compile(r"[0-9a-f]{64}")
_AGAIN = "remove {}, and install the bundles again"


class _Format(msgspec.Struct, frozen=True):
    format: int
    bundles: tuple[str, ...]


class Layout:
    """The paths below one layer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.list = root / "layer.json"
        self.bundles = root / "bundles"
        self.staging = root / "staging"
        self.lock = root / "lock"

    def read_list(self) -> tuple[str, ...]:
        """The ids of the bundles, the newest first; none where there is no layer.

        Raises `StoreUnavailable` when it is damaged or of a later release, and OSError.
        """
        try:
            raw = self.list.read_bytes()
        except FileNotFoundError:
            return ()
        try:
            found = msgspec.json.decode(raw, type=_Format)
        except msgspec.MsgspecError as error:
            raise StoreUnavailable(
                f"{self.list} is damaged: {error}", hint=_AGAIN.format(self.list)
            ) from error
        if found.format != FORMAT:
            raise StoreUnavailable(
                f"{self.root} has format {found.format}, this release uses {FORMAT}",
                hint=f"upgrade, or {_AGAIN.format(self.list)}",
            )
        if not all(map(_ID.fullmatch, found.bundles)):
            raise StoreUnavailable(
                f"{self.list} names something that is not a bundle", hint=_AGAIN.format(self.list)
            )
        return found.bundles


def encode_list(bundles: tuple[str, ...]) -> bytes:
    """The content of ``layer.json``."""
    return msgspec.json.encode(_Format(FORMAT, bundles)) + b"\n"


def require_safe_layer(root: Path, *, private_volume: bool = False) -> None:
    """Raises `UnsafeFolder` when somebody who is not trusted could change the layer.

    Trusted are this user and root. On a read-only mount nobody writes by this path; who mounted it
    so has vouched for it, whoever owns what is in it. With ``private_volume`` the folders above are
    not looked at: the caller says that nobody else reaches them.
    """
    read_only = bool(os.statvfs(root).f_flag & os.ST_RDONLY)
    # A link has mode 0777. What is in `staging` is removed, so it is looked at, too.
    folders = [root, root / "staging", root / "bundles", *(root / "bundles").glob("*")]
    for folder in folders:
        if not os.path.lexists(folder):
            continue
        facts = os.stat(folder, follow_symlinks=folder == root)
        if facts.st_mode & 0o002:
            raise UnsafeFolder(f"{folder} can be written by everybody", hint=f"chmod o-w {folder}")
        if read_only:
            continue
        if facts.st_uid not in (os.geteuid(), 0):
            raise UnsafeFolder(
                f"{folder} belongs to user {facts.st_uid}, this process runs as {os.geteuid()}",
                hint="mount it read-only, or install it as this user or as root",
            )
        if facts.st_mode & 0o020:
            raise UnsafeFolder(
                f"{folder} can be written by a group",
                hint=f"mount it read-only, or chmod g-w {folder}",
            )
    if not read_only and not private_volume:
        require_safe_ancestors(root.resolve())
