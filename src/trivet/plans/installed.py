"""A framework as it is installed, found without importing it.

A version string is not an identity: local builds, patched wheels and half-finished upgrades all
say the version of the original. So the shared libraries that do the work are identified by
content, and the memo keyed by `stat` makes that cheap for files that did not change.
"""

from __future__ import annotations

import fnmatch
import importlib.machinery
import importlib.util
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from blake3 import blake3

from trivet.errors import BackendError, MissingExtra
from trivet.keys import Fingerprint
from trivet.plans.backend import BackendFacts, Finding, Severity

if TYPE_CHECKING:
    from trivet.plans.memo import Memo

_CHUNK = 4 << 20
_HASH_THREADS = 2  # not AUTO: blake3's shared pool hangs a forked child
# A file whose time stamp is this fresh could be written again within the same tick of the file
# system's clock and look unchanged. Two seconds covers the coarsest one in use (FAT).
_RACY_NS = 2_000_000_000


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """How to recognise a framework on disk.

    Attributes:
        module: the module that a program imports. One within a namespace, such as
            ``iree.runtime``, stands for the whole folder of the namespace.
        distributions: names under which the module is published; more than one may be installed
            into the same folder, in which case all of them count.
        libraries: globs, relative to the folder of the top-level module, of the shared libraries
            that decide what a plan contains. A glob that matches nothing makes all shared libraries
            count. Empty for pure Python, which is told by its wheel's record alone.
        extra: what to install when the module is missing, as in ``trivet[extra]``.
    """

    module: str
    distributions: tuple[str, ...]
    libraries: tuple[str, ...]
    extra: str


def installed_facts(
    package: Package, memo: Memo | None = None, search: Sequence[str] | None = None
) -> BackendFacts:
    """Version, wheel record and core libraries of ``package``, as this process would import it.

    With ``search``, as a process with that ``sys.path`` would.

    Raises `MissingExtra` when it is not installed, and `BackendError` when it is there but nothing
    of it can be identified by content.
    """
    folder = locate(package.module, search)
    if folder is None:
        raise missing(package, "is not installed")
    top, *inner = package.module.split(".")
    for _ in inner:
        folder = folder.parent
    infos = _dist_infos(folder.parent, package.distributions)
    libraries = {
        str(path.relative_to(folder)): file_digest(path, memo)
        for path in _libraries(folder, package.libraries)
    }
    if package.libraries and not libraries:
        raise BackendError(
            f"{package.module} in {folder} has no shared libraries, so its build can't be told",
            hint="install it from a wheel; libraries outside the package are not followed",
        )
    record = _record_digest(infos, top, memo)
    if not libraries and not record:
        raise BackendError(
            f"{package.module} in {folder} has no record of its files, so its build can't be told",
            hint="install it from a wheel",
        )
    return BackendFacts(
        version=_version(infos, package.distributions), libraries=libraries, record=record
    )


class Installed:
    """A package as it is installed, read once.

    What a process has loaded does not change when its files are replaced.

    Attributes:
        memo: the last that was given, for digests of other files.
    """

    def __init__(self, package: Package) -> None:
        self.memo: Memo | None = None
        self._package = package
        self._facts: BackendFacts | None = None

    def facts(self, memo: Memo | None = None) -> BackendFacts:
        """As `installed_facts`."""
        self.memo = memo or self.memo
        if self._facts is None:
            self._facts = installed_facts(self._package, self.memo)
        return self._facts

    def require_unchanged(self) -> None:
        """Raise `OSError` when it is not what was read any more, so that another process has
        another one than this."""
        if self._facts is not None and installed_facts(self._package, self.memo) != self._facts:
            raise OSError(
                f"{self._package.module} was installed anew after this process had looked at it; "
                "start the process again"
            )


def missing(package: Package, why: str) -> MissingExtra:
    """The error that names the command which installs ``package``."""
    return MissingExtra(f"{package.module} {why}", hint=f"pip install 'trivet[{package.extra}]'")


def not_installed(package: Package) -> Finding:
    """The same as a finding."""
    error = missing(package, "is not installed")
    return Finding(Severity.ERROR, "not-installed", error.message, error.hint or "")


def locate(module: str, search: Sequence[str] | None = None) -> Path | None:
    """The folder from which ``import module`` would load, or None. Nothing is imported.

    A module that is loaded already counts where it was loaded from, whatever ``sys.path`` says now;
    with ``search``, only what a process with that ``sys.path`` would load.
    """
    loaded = sys.modules.get(module) if search is None else None
    if loaded is not None and getattr(loaded, "__file__", None):
        return Path(str(loaded.__file__)).parent
    try:
        if search is None:
            spec = importlib.util.find_spec(module)
        else:
            spec = importlib.machinery.PathFinder.find_spec(module, list(search))
    except (ImportError, ValueError):
        return None
    # Without an origin it is a namespace package: a left-over folder that imports as nothing.
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return None
    return Path(spec.origin).parent


def file_digest(
    path: Path, memo: Memo | None = None, *, now_ns: Callable[[], int] = time.time_ns
) -> str:
    """BLAKE3 of a file's content, 64 hexadecimal digits.

    With a ``memo``, a file of the same path, device, inode, size, modification and change time is
    not read again. A file changed less than two seconds before it was read is not remembered.

    Raises `OSError` when the file can't be read and `BackendError` when it changes meanwhile.
    """
    return _memoised(path, memo, b"file-blake3/1", _hash, now_ns).hex()


def _memoised(
    path: Path,
    memo: Memo | None,
    space: bytes,
    digest_of: Callable[[io.FileIO], bytes],
    now_ns: Callable[[], int] = time.time_ns,
) -> bytes:
    """``digest_of`` the file at ``path``, or what is remembered of it in ``space``.

    Of all threads and processes that ask at the same time, one reads the file.
    """
    if memo is None:
        return _read(path, digest_of, now_ns)[0]
    known = _recall(memo, _key(space, path, _identity(path.stat())))
    if known is not None:
        return known
    with memo.turn(_key(space, path, ())):
        # What is remembered must stand for the file as it is now, after the waiting.
        known = _recall(memo, _key(space, path, _identity(path.stat())))
        if known is not None:
            return known
        digest, found, racy = _read(path, digest_of, now_ns)
        if not racy:
            memo.put(_key(space, path, found), digest)
        return digest


def _recall(memo: Memo, key: bytes) -> bytes | None:
    known = memo.get(key)
    return known if known is not None and len(known) == blake3.digest_size else None


def _read(
    path: Path, digest_of: Callable[[io.FileIO], bytes], now_ns: Callable[[], int]
) -> tuple[bytes, tuple[int, ...], bool]:
    """``digest_of`` the file, the identity it had, and whether it may change unseen."""
    for _ in range(2):
        before, started = _identity(path.stat()), now_ns()
        with path.open("rb", buffering=0) as file:
            digest = digest_of(file)
            after = _identity(os.fstat(file.fileno()))
        if before == after:
            return digest, before, started - max(before[-2:]) <= _RACY_NS
    raise BackendError(f"{path} keeps changing while it is read")


def _key(space: bytes, path: Path, identity: tuple[int, ...]) -> bytes:
    return b"\0".join((space, msgspec.msgpack.encode((os.fsencode(path), *identity))))


def _hash(file: io.FileIO) -> bytes:
    hasher = blake3(max_threads=_HASH_THREADS)
    buffer = memoryview(bytearray(_CHUNK))
    while count := file.readinto(buffer):
        hasher.update(buffer[:count])
    return hasher.digest()


def _identity(stat: os.stat_result) -> tuple[int, ...]:
    # The change time can't be set by tar, rsync or touch; the modification time can.
    return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def _libraries(folder: Path, globs: Sequence[str]) -> list[Path]:
    matches = [_matches(folder, glob) for glob in globs]
    if not all(matches):
        # Another layout than the wheels': better too many files in the key than too few.
        matches.append(list(folder.rglob("*.so*")))
    return sorted({path for found in matches for path in found if path.is_file()})


def _matches(folder: Path, glob: str) -> list[Path]:
    """`Path.glob` for patterns in the last part only, at a fraction of its cost."""
    *parents, pattern = glob.split("/")
    parent = folder.joinpath(*parents)
    try:
        return [parent / name for name in fnmatch.filter(os.listdir(parent), pattern)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _dist_infos(parent: Path, distributions: Iterable[str]) -> list[tuple[str, Path]]:
    """``(version, folder)`` of each distribution that is installed beside the module."""
    wanted = {_normal(name) for name in distributions}
    found = []
    for entry in os.listdir(parent):
        if not entry.endswith(".dist-info"):
            continue
        name, _, version = entry.removesuffix(".dist-info").partition("-")
        if _normal(name) in wanted:
            found.append((f"{_normal(name)} {version}", parent / entry))
    return sorted(found)


def _version(infos: Sequence[tuple[str, Path]], distributions: Sequence[str]) -> str:
    if infos:
        return ", ".join(version for version, _ in infos)
    # An editable install: its metadata lies elsewhere on sys.path. The import costs 20 ms, which a
    # wheel need not pay.
    from importlib import metadata

    for name in distributions:
        try:
            return f"{_normal(name)} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def _record_digest(infos: Sequence[tuple[str, Path]], module: str, memo: Memo | None) -> str:
    """BLAKE3 over what the wheels say they put into the module's folder; empty without a record.

    Only lines with a hash: installers add their own files (byte code, INSTALLER, scripts), which
    differ between pip and uv and between Python versions.
    """
    prefix = f"{module}/".encode()

    def digest_of(file: io.FileIO) -> bytes:
        lines = file.readall().splitlines()
        return blake3(
            b"\n".join(sorted(x for x in lines if x.startswith(prefix) and b",sha256=" in x))
        ).digest()

    digests = [
        _memoised(folder / "RECORD", memo, b"record-blake3/1 " + prefix, digest_of)
        for _, folder in infos
        if (folder / "RECORD").is_file()
    ]
    return Fingerprint.of_parts(digests).hex() if digests else ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
