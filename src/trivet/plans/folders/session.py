"""All guarded folders of one run: what the program is given, and what is kept of it."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from trivet import log
from trivet.cache import Cache, Hit, Lease
from trivet.cache.cache import WAIT_SECONDS
from trivet.codecs import MsgPack
from trivet.errors import TrivetError
from trivet.keys import Key
from trivet.plans.folders.checkpoint import Checkpoints, report_here
from trivet.plans.folders.fingerprint import digest_inputs, folder_key, present
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.guard import KeptFolder, Restored
from trivet.plans.folders.interpreter import Interpreter
from trivet.plans.folders.reports import Counters, Reports
from trivet.plans.host import read_host
from trivet.plans.installed import file_digest
from trivet.plans.memo import CacheMemo

_PARTS = "folder-implementations/1"
_NAMES: MsgPack[list[str]] = MsgPack(list[str])
_NUMBER: MsgPack[int] = MsgPack(int)
_DEATHS = 2
_GONE = "missing"
_TRIES = 3


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What guarding one framework did in a run.

    Attributes:
        framework: its name.
        restored: see `Restored`. reason: why it was not a hit.
        files, size: restored, and their bytes.
        added: files that this run added and that were kept.
        counters: the framework's own, None where no process reported.
    """

    framework: str
    restored: Restored
    reason: str
    files: int
    size: int
    added: int
    counters: Counters | None


class GuardedRun:
    """Gives a program private folders in the place of its frameworks' caches.

    ::

        with GuardedRun(cache, frameworks, interpreter, os.environ) as run:
            code = subprocess.call(command, env=run.environment)
            run.capture()

    Args:
        cache: where folders are kept.
        frameworks: those to guard; ones that are not installed are left out.
        interpreter: which Python the program runs in.
        environment: what the program would get without a guard.
        command: that is run, with its arguments; which operators it takes is learnt for each.
        inputs: files, or folders of files, that compiled things depend on; by content in the key.
        salts: whatever else is to be kept apart.
        wait: seconds to wait for other runs that are filling folders, all together.

    Attributes:
        environment: what the program is to be given.
        checkpoints: where the program asks to be captured.
    """

    def __init__(
        self,
        cache: Cache,
        frameworks: Sequence[CacheFolder],
        interpreter: Interpreter,
        environment: Mapping[str, str],
        *,
        command: Sequence[str] = (),
        inputs: Sequence[Path] = (),
        salts: Mapping[str, str] | None = None,
        wait: float = WAIT_SECONDS,
    ) -> None:
        self._cache = cache
        self._interpreter = interpreter
        self._command = tuple(map(os.fsencode, command))
        self._memo = CacheMemo(cache)
        self._cwd = os.getcwd()  # which the program may remove
        self._salts = dict(salts or {})
        self._declared = list(inputs)
        self._inputs = digest_inputs(self._declared, self._memo)
        self._host = read_host(environment)
        self._until = time.monotonic() + wait
        self._started = time.time_ns()
        self._ready = False
        self._bases: dict[str, Key] = {}
        self._stack = ExitStack()
        self._folders: list[KeptFolder] = []
        self._added: dict[str, int] = {}
        try:
            own = self._stack.enter_context(
                tempfile.TemporaryDirectory(prefix="trivet-run-", dir=_short())
            )
            self._reports = Reports(Path(own) / "reports")
            self.checkpoints = Checkpoints(Path(own))
            self._stack.callback(self.checkpoints.close)
            for each in frameworks:
                if present(each, interpreter):
                    self._open(each)
        except BaseException:
            self.close()
            raise
        self.environment = self._environment(environment)

    def variables(self) -> dict[str, str]:
        """Where the private folders are, and settings that the caller has not made."""
        given: dict[str, str] = {}
        for folder in self._folders:
            given.update(folder.variables())
            for name, value in folder.framework.settings.items():
                given.setdefault(name, self._host.environment.get(name, value))
        return given

    @property
    def reports(self) -> Path:
        """The folder where processes of the program report what they did."""
        return self._reports.folder

    @property
    def folders(self) -> tuple[KeptFolder, ...]:
        """The private folders, one for each framework."""
        return tuple(self._folders)

    def capture(self) -> bool:
        """Keep what the program has compiled so far.

        False when something can't be kept, which is logged; nothing is raised for it.
        """
        report_here()
        reported = self._portable(self._reports.implementations())
        kept = True
        for folder in self._folders:
            name, added = folder.framework.name, folder.added()
            try:
                if folder.capture(self._learn(folder.framework, reported)):
                    self._added[name] = self._added.get(name, 0) + added
            except (TrivetError, OSError, ValueError) as error:  # also names that are no text
                log.warning("the cache of %s is not kept: %s", name, error)
                kept = False
        return kept

    def is_ready(self) -> None:
        """The program got where it was to get: what it was given is not to blame for its end."""
        self._ready = True
        for folder in self._folders:
            folder.release()  # what the program did not use by now nobody needs to wait for
            self._cache.forget(_deaths_key(folder.key))

    def ended(self, *, well: bool) -> None:
        """The program ended, ``well`` or not.

        A folder from the store with which it ended badly twice in a row, before it was ready, is
        set aside: the third start begins without it.
        """
        if well:
            self.is_ready()
        if self._ready:
            return
        for folder in self._folders:
            if folder.restored is not Restored.HIT:
                continue
            key = _deaths_key(folder.key)
            found = self._cache.get(key, _NUMBER)
            deaths = 1 + (found.value if isinstance(found, Hit) else 0)
            self._cache.forget(key)
            if deaths >= _DEATHS:
                folder.quarantine(f"{deaths} programs in a row ended badly before they were ready")
                continue
            lease = self._cache.acquire(key, _NUMBER, wait=0.0)
            if isinstance(lease, Lease):
                lease.commit(deaths)

    def effects(self) -> list[Effect]:
        """What came of it, by the frameworks' own counters where they report any."""
        counters = self._reports.counters()
        return [
            Effect(
                framework=each.framework.name,
                restored=each.restored,
                reason=each.reason,
                files=each.files,
                size=each.size,
                added=self._added.get(each.framework.name, 0),
                counters=counters.get(each.framework.name),
            )
            for each in self._folders
        ]

    def close(self) -> None:
        """Remove the private folders; what was not captured is lost."""
        for each in self._folders:
            each.close()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------

    def _open(self, framework: CacheFolder) -> None:
        try:
            key = self._key(framework, self._known(framework))
        except (TrivetError, OSError) as error:
            log.warning("%s is left alone: %s", framework.name, error)
            return
        for _ in range(_TRIES):
            left = max(0.0, self._until - time.monotonic())
            folder = KeptFolder(self._cache, framework, key, command=self._command, wait=left)
            # Who was waited for may have learnt of more files that the folder depends on.
            known = self._key(framework, self._known(framework))
            if folder.restored is not Restored.EMPTY or known == key:
                break
            folder.close()
            key = known
        self._folders.append(folder)

    def _environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        given = {**environment, **self.variables()}
        if self._folders:
            given.update(self._reports.variables(environment))
            given.update(self.checkpoints.variables())
        return given

    def _key(self, framework: CacheFolder, implementations: Sequence[str]) -> Key:
        """The key of a folder that depends on these files, as they are now."""
        base = self._base(framework)
        return base.replace(implementations={name: self._digest(name) for name in implementations})

    def _base(self, framework: CacheFolder) -> Key:
        found = self._bases.get(framework.name)
        if found is None:
            found = self._bases[framework.name] = folder_key(
                framework, self._interpreter, self._host, self._inputs, self._salts, self._memo
            )
        return found

    def _known(self, framework: CacheFolder) -> list[str]:
        """Names of the files that this command took operators from, under this fingerprint.

        Of this command, since its arguments may decide which. What other commands keep that took
        operators from nowhere, or from the same files, is found all the same.
        """
        found = self._cache.get(self._names_key(framework), _NAMES)
        return found.value if isinstance(found, Hit) else []

    def _names_key(self, framework: CacheFolder) -> Key:
        return Key(_PARTS, {"folder": self._base(framework).digest, "command": self._command})

    def _learn(self, framework: CacheFolder, reported: set[str]) -> Key:
        """Remember what the program took operators from; the key with all of it."""
        known = self._known(framework)
        names = sorted({*known, *reported})
        self._require_old(names)
        gone = next((each for each in reported if not self._here(each).exists()), None)
        if gone is not None:
            raise TrivetError(f"{gone} is gone, so what was made with it can't be told apart")
        if digest_inputs(self._declared, self._memo) != self._inputs:
            raise TrivetError("an input changed while the program ran")
        if names != known:
            key = self._names_key(framework)
            if known:
                self._cache.forget(key)
            found = self._cache.acquire(key, _NAMES, wait=0.0)
            if isinstance(found, Lease):
                found.commit(names)
        return self._key(framework, names)

    def _places(self) -> list[tuple[str, str]]:
        """Marks for the places that differ between hosts; the more special first."""
        prefix = str(Path(self._interpreter.executable).parent.parent)
        return [("{cwd}", self._cwd), ("{prefix}", prefix)]

    def _portable(self, paths: set[str]) -> set[str]:
        names = set()
        private = tuple(str(each.path) + os.sep for each in self._folders)
        for path in paths:
            if path.startswith(private):
                continue  # compiled in this run
            inside = (each for each in self._places() if path.startswith(each[1] + os.sep))
            mark, place = next(inside, ("", ""))
            names.add(mark + path.removeprefix(place))
        return names

    def _here(self, name: str) -> Path:
        for mark, place in self._places():
            if name.startswith(mark):
                return Path(place + name.removeprefix(mark))
        return Path(name)

    def _digest(self, name: str) -> str:
        try:
            return file_digest(self._here(name), self._memo)
        except FileNotFoundError:
            return _GONE

    def _require_old(self, names: Sequence[str]) -> None:
        """Raise for a file that changed since the program could have loaded it."""
        for name in names:
            path = self._here(name)
            if path.exists() and path.stat().st_ctime_ns >= self._started:
                raise TrivetError(f"{path} changed while the program ran")


def _short() -> str | None:
    """Where a socket's path fits into its 107 bytes; None for the usual place."""
    return "/tmp" if len(os.fsencode(tempfile.gettempdir())) > 70 else None


def _deaths_key(folder: Key) -> Key:
    return Key("folder-deaths/1", {"folder": folder.digest})
