"""The folder of one run of ``trivet exec``, which goes when the last that uses it has gone.

Whoever uses it holds a lock that dies with its holder: the command, and every Python process that
was given a private folder. Other programs are found by the variable in their environment.

Nothing heavy is imported here: it stands between the command and its program.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

VARIABLE = "TRIVET_EXEC_RUN"
DECLARED = "TRIVET_EXEC_DECLARED"
HOOK = Path(__file__).parent / "hook"
_PREFIX = "run-"
_GONE = "gone-"  # of what is being removed, or was to be
_ROOM = 512 << 20  # bytes; frameworks end the program when they can't write, Inductor up to 300 MB
_ROOM_FOR_FILES = 1000  # where the file system counts them


def parents(root: Path | None) -> Iterator[Path]:
    """Where the folder of a run may be made: in the cache folder ``root``, so that files need not
    be copied to another file system, where others can't write to it and its disk has room and lets
    programs run; else a temporary folder."""
    inside = _inside(root)
    if inside is not None and _is_fit(inside.parent):
        yield inside
        inside = None
    yield _temporary()
    if inside is not None:
        yield inside


def _inside(root: Path | None) -> Path | None:
    if root is not None:
        with contextlib.suppress(OSError):
            facts = root.stat()
            if facts.st_uid == os.geteuid() and not facts.st_mode & 0o022:
                return root.resolve() / "runs"
    return None


def _temporary() -> Path:
    # Not by tempfile, whose import costs more than all of this.
    places = (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp")
    place = next((each for each in places if os.access(each, os.W_OK | os.X_OK)), "/tmp")
    return Path(place) / f"trivet-{os.geteuid()}"


def _require_private(parent: Path) -> None:
    """Raises `OSError` for a folder that others can write to."""
    facts = parent.lstat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise PermissionError(f"{parent} can be written by others")


def _is_fit(folder: Path) -> bool:
    try:
        require_room(folder)
        return not os.statvfs(folder).f_flag & os.ST_NOEXEC  # compilers' libraries are loaded there
    except OSError:
        return False


def require_room(folder: Path, size: int = 0) -> None:
    """Raise `OSError` where the disk of ``folder`` has no room for ``size`` bytes, and for what a
    framework may write beside them."""
    facts = os.statvfs(folder)
    free, needed = facts.f_bavail * facts.f_frsize, size + _ROOM
    if free < needed:
        raise OSError(
            f"{folder} has {free // 10**6} MB of room, and {needed // 10**6} MB may be needed"
        )
    if facts.f_files and facts.f_favail < _ROOM_FOR_FILES:
        raise OSError(f"{folder} has room for {facts.f_favail} files only")


class RunFolder:
    """A private folder below ``parent``, of this run alone.

    Attributes:
        path: where it is.
    """

    def __init__(self, parent: Path) -> None:
        """Make it. Raises `OSError`."""
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_private(parent)
        parent.chmod(0o700)  # whatever the umask left of it, for all later runs
        self._parent = parent
        with _locked(parent):
            self.path = parent / f"{_PREFIX}{os.urandom(8).hex()}"
            self.path.mkdir(mode=0o700)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_SH)
        (self.path / "reports").mkdir()
        (self.path / "folders").mkdir()

    def environment(self, given: Mapping[str, str], *, declared: bool) -> dict[str, str]:
        """``given`` with what leads every Python of the run to the hook."""
        before = given.get("PYTHONPATH")
        return {
            **given,
            "PYTHONPATH": f"{HOOK}{os.pathsep}{before}" if before else str(HOOK),
            VARIABLE: str(self.path),
            **({DECLARED: "1"} if declared else {}),
        }

    def sweep(self, root: Path | None = None) -> None:
        """Remove what runs have left that nobody uses any more, here, in the cache folder ``root``,
        and where runs are that began before there was one, or had no room in it."""
        for parent in {self._parent, _temporary(), _inside(root) or self._parent}:
            with contextlib.suppress(OSError):
                _require_private(parent)
                with _locked(parent):
                    for each in parent.glob(_PREFIX + "*"):
                        if each != self.path and _is_unused(each):
                            each.rename(parent / f"{_GONE}{each.name}")
                # Without the lock, for which every run that begins would wait.
                for each in parent.glob(_GONE + "*"):
                    _remove(each)

    def close(self, *, check: bool = True) -> bool:
        """Remove it; with ``check``, only if nobody else uses it. False when it is still there."""
        if check and not (_can_lock(self._lock) and not _running(self.path)):
            return False
        self.leave()
        _remove(self.path)
        return True

    def leave(self) -> None:
        """Leave it to a later run to remove it."""
        os.close(self._lock)


def _remove(folder: Path) -> None:
    import shutil  # brings four compression libraries along

    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(parent: Path) -> Iterator[None]:
    descriptor = os.open(parent / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _can_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_unused(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # of one that died while it was made, or whose program removed it
        return not _running(folder)
    try:
        return _can_lock(descriptor) and not _running(folder)
    finally:
        os.close(descriptor)


def _running(folder: Path) -> set[int]:
    """Processes of this user that were started with the folder in their environment."""
    wanted = os.fsencode(f"{VARIABLE}={folder}") + b"\0"
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read():
                    found.add(int(name))
    return found
