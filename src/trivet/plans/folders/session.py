"""All guarded folders of one run: what its processes are given, and what is kept of it."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trivet import log
from trivet.cache import Cache
from trivet.cache.coordinator import WAIT_SECONDS
from trivet.errors import TrivetError
from trivet.keys import Key
from trivet.plans.folders.checkpoint import report_here
from trivet.plans.folders.crashes import Crashes
from trivet.plans.folders.dependencies import Basis, Dependencies
from trivet.plans.folders.effects import Effect, effects_of
from trivet.plans.folders.fingerprint import digest_inputs, present
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.given import Asked, given_to
from trivet.plans.folders.growing import PATIENCE
from trivet.plans.folders.guard import KeptFolder, Restored
from trivet.plans.folders.interpreter import Interpreter
from trivet.plans.folders.jobs import is_one_of_several
from trivet.plans.folders.reports import Reports
from trivet.plans.memo import CacheMemo

_CRASHES = 2
_TRIES = 3


class GuardedRun:
    """Gives the processes of a program private folders in the place of their frameworks' caches.

    Each is given what fits what it says of itself: its Python, its environment, and what implements
    operators in it. Methods may be called from any thread.

    Args:
        cache: where folders are kept.
        frameworks: those to guard.
        place: a folder of this run alone, as `RunFolder` makes it.
        environment: what the command was started with.
        command: that is run, with its arguments; what it loads is learnt for each.
        inputs: files, or folders of files, that compiled things depend on; by content in the key.
        salts: whatever else is to be kept apart.
        wait: seconds to wait for other runs that are filling folders, all together.
        started: nanoseconds since the epoch, before the program could load anything.
        close_cache: close the cache with the run.
    """

    def __init__(
        self,
        cache: Cache,
        frameworks: Sequence[CacheFolder],
        place: Path,
        environment: Mapping[str, str],
        *,
        command: Sequence[str] = (),
        inputs: Sequence[Path] = (),
        salts: Mapping[str, str] | None = None,
        wait: float = WAIT_SECONDS,
        started: int | None = None,
        close_cache: bool = False,
    ) -> None:
        self._cache = cache
        self._close_cache = close_cache
        self._frameworks = tuple(frameworks)
        self._place = place
        self._environment = dict(environment)
        self._command = tuple(map(os.fsencode, command))
        self._memo = CacheMemo(cache)
        self._declared = list(inputs)
        self._inputs = digest_inputs(self._declared, self._memo)
        self._dependencies = Dependencies(
            cache,
            self._memo,
            command=self._command,
            inputs=self._inputs,
            salts=dict(salts or {}),
            started=time.time_ns() if started is None else started,
            cwd=os.getcwd(),
        )
        self._until = time.monotonic() + wait
        self._crashes = Crashes(cache.host_only)
        self._reports = Reports(place / "reports")
        self._locks = {each.name: threading.Lock() for each in frameworks}
        self._folders: list[KeptFolder] = []
        self._given: dict[str, set[str]] = {}  # folder to the processes that it was given to
        # Of each framework, process to the folder that it has now.
        self._has: dict[str, dict[str, KeptFolder]] = {each.name: {} for each in frameworks}
        self._not_kept: dict[str, str] = {}
        self._ready = False

    @property
    def folders(self) -> tuple[KeptFolder, ...]:
        """The private folders so far."""
        return tuple(self._folders)

    def declared(self, interpreter: Interpreter) -> dict[str, str]:
        """Variables that lead to the folders that are always there, for a program in
        ``interpreter``."""
        asked = Asked(
            process="", module="", python=interpreter, environment=self._environment, own=[]
        )
        return {
            name: value
            for folder in self._open_all(asked)
            for name, value in folder.variables().items()
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What a process of the run is told; see `Requests`."""
        if request.get("ask") == "keep":
            return {"kept": self.capture()}
        asked = msgspec.convert(request, type=Asked)
        folders = self._open_all(asked)
        for each in folders:
            self._given.setdefault(each.path.name, set()).add(asked.process)
        return {"folders": [given_to(each, self._dependencies) for each in folders]}

    def capture(self) -> bool:
        """Keep what the program has compiled so far.

        False when something can't be kept, which is logged; nothing is raised for it. Others that
        keep the same are waited for, for a minute in all.
        """
        report_here()
        until = self._cache.clock.monotonic() + PATIENCE
        kept = True
        for folder in self.folders:
            name = folder.path.name
            try:
                make_key = functools.partial(self._key_of, folder)
                if folder.capture(make_key, functools.partial(make_key, until), until):
                    self._not_kept.pop(name, None)
            except (TrivetError, OSError, ValueError) as error:  # also names that are no text
                log.warning("the cache of %s is not kept: %s", folder.framework.name, error)
                self._not_kept[name] = str(error)
                kept = False
        return kept

    def is_ready(self) -> None:
        """The program got where it was to get: what it was given is not to blame for its end."""
        self._ready = True
        for folder in self.folders:
            folder.release()  # what the program did not use by now nobody needs to wait for
            self._crashes.forget(folder.key)

    def ended(self, *, well: bool) -> None:
        """The program ended, ``well`` or not.

        A folder from the store with which it ended badly twice in a row, before it was ready, is
        set aside: the third start begins without it.
        """
        if well:
            self.is_ready()
        if self._ready:
            return
        for folder in self.folders:
            crashes = self._crashes.add(folder.key) if folder.restored is Restored.HIT else 0
            if crashes >= _CRASHES:
                self._crashes.forget(folder.key)
                folder.quarantine(f"{crashes} programs in a row ended badly before they were ready")

    def effects(self) -> list[Effect]:
        """What came of it, by the frameworks' own counters where they report any."""
        report_here()
        reports = self._reports.all()
        return effects_of(self.folders, reports, self._not_kept)

    def close(self) -> None:
        """Keep nobody waiting. The private folders go with the run's."""
        for each in self.folders:
            each.release()
        if self._close_cache:
            self._cache.close()

    # -- inside --------------------------------------------------------------------------------

    def _open_all(self, asked: Asked) -> list[KeptFolder]:
        found = []
        for framework in self._frameworks:
            if (asked.module in framework.modules) if asked.module else not framework.modules:
                with self._locks[framework.name]:
                    folder = self._open(framework, asked)
                if folder is not None:
                    found.append(folder)
        return found

    def _open(self, framework: CacheFolder, asked: Asked) -> KeptFolder | None:
        if not present(framework, asked.python) or self._is_left_alone(framework, asked):
            return None
        try:
            basis = self._basis(framework, asked)
            folder = self._there(basis)
            self._leave(framework, asked.process, folder)
            if folder is None:
                folder = self._kept(framework, basis, asked)
                self._folders.append(folder)
        except (TrivetError, OSError, ValueError) as error:
            log.warning("%s is left alone: %s", framework.name, error)
            return None
        if asked.process:
            self._has[framework.name][asked.process] = folder
        return folder

    def _basis(self, framework: CacheFolder, asked: Asked) -> Basis:
        return self._dependencies.basis(
            framework,
            asked.python,
            asked.environment,
            asked.own,
            asked.arguments,
            exact=asked.exact,
        )

    def _there(self, basis: Basis) -> KeptFolder | None:
        """A folder of this run that fits. Others may implement operators of the same names."""
        for folder in self.folders:
            # What this run fills learns of what its processes load that is installed.
            if (folder.basis.base, folder.basis.own) == (basis.base, basis.own) and (
                folder.restored is not Restored.HIT or {*basis.names} <= {*folder.basis.names}
            ):
                return folder
        return None

    def _leave(self, framework: CacheFolder, process: str, to: KeptFolder | None) -> None:
        """Who waits for the folder that the process has waits in vain, if nobody else fills it."""
        has = self._has[framework.name]
        left = has.pop(process, None)
        if left is not None and left is not to and left not in has.values() and not left.has_more():
            left.release()

    def _kept(self, framework: CacheFolder, basis: Basis, asked: Asked) -> KeptFolder:
        # Two runs that each fill what the other waits for would wait for ever.
        fills = any(each.is_awaited for each in self._folders)
        for number in range(_TRIES):
            folder = KeptFolder(
                self._cache,
                framework,
                basis,
                self._dependencies.key(basis),
                self._place / "folders" / f"{framework.name}.{len(self._folders)}.{number}",
                command=self._command,
                wait=0.0 if fills else self._patience(asked),
            )
            # Who was waited for may have learnt of more files that the folder depends on.
            again = self._basis(framework, asked)
            if folder.restored is not Restored.EMPTY or again == basis or number == _TRIES - 1:
                break
            folder.release()
            basis = again
        return folder

    def _patience(self, asked: Asked) -> float:
        """How many seconds the process may be kept waiting for what another run compiles."""
        for environment in (asked.environment, self._environment):
            if is_one_of_several(environment, self._command):
                return 0.0
        return max(0.0, self._until - time.monotonic())

    def _is_left_alone(self, framework: CacheFolder, asked: Asked) -> bool:
        """Whether the program itself says where the framework's cache is to be."""
        ours = str(self._place) + os.sep
        for name in framework.variables:
            value = asked.environment.get(name)
            if value not in (None, self._environment.get(name)) and not value.startswith(ours):
                return True
        return False

    def _key_of(self, folder: KeptFolder, tell_until: float | None = None) -> Key:
        """The key with all that the program loaded with the folder; others are told of it if there
        is a time until when they may be waited for."""
        doubt = self._reports.doubt(self._given.get(folder.path.name, set()))
        if doubt:
            raise TrivetError(doubt)
        reports = [each for each in self._reports.all() if folder.path.name in each.folders]
        if not reports and folder.framework.modules:
            raise TrivetError("no process said what it loaded")
        if digest_inputs(self._declared, self._memo) != self._inputs:
            raise TrivetError("an input changed while the program ran")
        loaded = {path for each in reports for path in each.folders[folder.path.name]}
        own = {path for each in reports for path in each.own}
        known = self._dependencies
        if tell_until is None:
            return known.with_loaded(folder.framework, folder.basis, loaded, own)
        return known.learn(folder.framework, folder.basis, loaded, own, tell_until)
