"""Which folders may hold a cache: nobody else's, and no network file system."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trivet.errors import StoreUnavailable, UnsafeFolder

_NETWORK = frozenset(
    {"9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "fhgfs", "glusterfs", "gpfs", "lustre"}
    | {"ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs"}
)
_OCTAL = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


def network_filesystem(path: Path, mounts: str | None = None) -> str | None:
    """The type of the network file system that ``path`` lies on, or None for a local one.

    Memory maps and locks of the index are coherent on one machine only. Every FUSE file system
    with a subtype that isn't known to be local counts as remote. ``mounts`` is the text of
    ``/proc/self/mountinfo`` (tests).
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return None
    kind = _filesystem_type(os.path.realpath(path), mounts)
    if kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE):
        return kind
    return None


_LOCAL_FUSE = frozenset(
    {"fuse.fuse-overlayfs", "fuse.ntfs", "fuse.ntfs-3g", "fuse.bindfs", "fuse.lxcfs"}
)


def _filesystem_type(path: str, mounts: str) -> str:
    """The type of the mount with the longest mount point above ``path``; the last one wins."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if len(fields) < 5 or not tail[0]:
            continue
        point = fields[4]
        for code, text in _OCTAL.items():
            point = point.replace(code, text)
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), tail[0]
    return kind


def require_local(path: Path) -> None:
    """Raises `StoreUnavailable` when ``path`` lies on a network file system."""
    kind = network_filesystem(path)
    if kind:
        raise StoreUnavailable(
            f"{path} is on a network file system ({kind}), where the index can't live",
            hint="use a folder on a local disk; share between hosts through a shared store",
        )


def require_safe(folder: Path) -> None:
    """Raises `UnsafeFolder` unless only this user, or root, can write to ``folder``.

    ``folder`` is resolved (no links) and exists. Checked: its owner and mode, those of the folders
    in it, and that no ancestor lets everybody rename what is in it.
    """
    _require_owned(folder)
    for each in ("index", "objects", "artifacts", "staging"):
        if os.path.lexists(folder / each):
            _require_owned(folder / each)
    require_safe_ancestors(folder)


def require_safe_ancestors(folder: Path) -> None:
    """The part of `require_safe` that can be checked before the folder exists."""
    for parent in folder.parents:
        try:
            mode = os.stat(parent).st_mode
        except FileNotFoundError:
            continue
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise UnsafeFolder(
                f"{parent} can be written by everybody, so {folder} could be replaced by anybody",
                hint=f"chmod o-w {parent}   (or chmod +t {parent})",
            )


def _require_owned(folder: Path) -> None:
    facts = os.stat(folder)
    user = os.geteuid()
    if facts.st_uid not in (user, 0):
        raise UnsafeFolder(
            f"{folder} belongs to user {facts.st_uid}, this process runs as user {user}",
            hint=f"chown -R {user} {folder}   (or choose another folder)",
        )
    if facts.st_mode & 0o022:
        raise UnsafeFolder(
            f"{folder} can be written by other users (mode {stat.S_IMODE(facts.st_mode):04o})",
            hint=f"chmod go-w {folder}",
        )
