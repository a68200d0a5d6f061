"""What a private folder depends on: known before, seen while the program ran, and as a key."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from trivet.cache import Cache
from trivet.errors import TrivetError
from trivet.keys import Key
from trivet.plans.folders.fingerprint import folder_key
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.interpreter import Interpreter
from trivet.plans.folders.learned import Learned, Places
from trivet.plans.host import read_host
from trivet.plans.installed import file_digest, locate
from trivet.plans.memo import Memo

_GONE = "missing"
_CLOCK_NS = 10_000_000  # file systems stamp by a clock that lags behind by up to a tick


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a folder's user when it is given out.

    Attributes:
        base: the key without the files that implementations are in.
        python, environment: of the process that asked, without what the guard has set.
        names: the files that the folder is taken to depend on, named as on every host.
        own: those of them that its user brings itself, all of them and no others, by content.
    """

    base: Key
    python: Interpreter
    environment: dict[str, str]
    names: list[str]
    own: Mapping[str, str] = {}


class Dependencies:
    """Makes keys of what folders depend on.

    Args:
        cache: where it is kept which files a command loads.
        memo: remembers digests of unchanged files.
        command: that is run.
        inputs, salts: see `folder_key`.
        started: nanoseconds since the epoch; a file that changed since then is not believed.
        cwd: of the command, which the program may remove.
    """

    def __init__(
        self,
        cache: Cache,
        memo: Memo,
        *,
        command: tuple[bytes, ...],
        inputs: Mapping[str, str],
        salts: Mapping[str, str],
        started: int,
        cwd: str,
    ) -> None:
        self._learned = Learned(cache, command)
        self._memo = memo
        self._inputs, self._salts = inputs, salts
        self._started = started - _CLOCK_NS
        self._cwd = cwd

    def basis(
        self,
        framework: CacheFolder,
        python: Interpreter,
        environment: Mapping[str, str],
        own: Iterable[str],
        arguments: Sequence[str] = (),
        *,
        exact: bool = False,
    ) -> Basis:
        """That of a process; see `Asked`. Unless it is ``exact``, it is taken to load what earlier
        runs of the command did. Raises as `folder_key`, and `OSError`."""
        ours = framework.settings
        clean = {name: value for name, value in environment.items() if ours.get(name) != value}
        base = folder_key(
            framework,
            python,
            read_host(clean),
            self._inputs,
            self._salts,
            self._memo,
            arguments=arguments,
            cwd=self._cwd,
        )
        mine = self._names(framework, python, own)
        last = set() if exact else {*self._learned.own(base)}
        if mine < last:
            mine = last
        places = self._places(python)
        return Basis(
            base=base,
            python=python,
            environment=clean,
            names=sorted({*self._learned.installed(base, mine), *mine}),
            own={name: self._digest(places.path(name)) for name in sorted(mine)},
        )

    def key(self, basis: Basis) -> Key:
        """The key of a folder that depends on the files of ``basis``, as they are now."""
        return self._key(basis, basis.names)

    def own_paths(self, basis: Basis) -> list[str]:
        """Where the files are here that the user of ``basis`` brings itself."""
        places = self._places(basis.python)
        return [places.path(name) for name in basis.own]

    def with_loaded(
        self, framework: CacheFolder, basis: Basis, loaded: Iterable[str], own: Iterable[str]
    ) -> Key:
        """The key of a folder whose user ``loaded`` these files, of which ``own`` are its own, with
        all that is known besides.

        Raises `TrivetError` for files that are not what was loaded.
        """
        names = self._trusted(framework, basis, loaded)
        mine = self._own(framework, basis, names, own)
        return self._key(basis, {*self._learned.installed(basis.base, mine), *names})

    def learn(
        self,
        framework: CacheFolder,
        basis: Basis,
        loaded: Iterable[str],
        own: Iterable[str],
        until: float = math.inf,
    ) -> Key:
        """Remember it; the same key.

        From then on others look for the folder under that key. ``until`` is as for `grow`. Raises
        as `with_loaded`, and `ValueError` for names that are no Unicode.
        """
        names = self._trusted(framework, basis, loaded)
        mine = self._own(framework, basis, names, own)
        return self._key(
            basis, {*self._learned.learn(basis.base, mine, names - mine, until), *mine}
        )

    def _own(
        self, framework: CacheFolder, basis: Basis, names: set[str], own: Iterable[str]
    ) -> set[str]:
        return {*basis.own, *(names & self._names(framework, basis.python, own))}

    def _trusted(self, framework: CacheFolder, basis: Basis, loaded: Iterable[str]) -> set[str]:
        seen = self._names(framework, basis.python, loaded)
        names = {*basis.names, *seen}
        places = self._places(basis.python)
        for name in sorted(names):
            path = Path(places.path(name))
            if not path.is_file():
                if name not in seen:
                    continue  # of another run
                raise TrivetError(f"{path} is gone, so what was made with it can't be told apart")
            if path.stat().st_ctime_ns >= self._started:
                raise TrivetError(f"{path} changed while the program ran")
        return names

    def packages(self, framework: CacheFolder, python: Interpreter) -> list[str]:
        """The folders whose contents the key knows without their being loaded; with links and
        without, each with a slash at the end."""
        found = set()
        for package in framework.packages:
            folder = locate(package.module, python.path)
            if folder is not None:
                found |= {f"{folder}/", f"{folder.resolve()}/"}
        return sorted(found)

    def _key(self, basis: Basis, names: Iterable[str]) -> Key:
        places = self._places(basis.python)
        return basis.base.replace(
            implementations={name: self._digest(places.path(name)) for name in sorted(names)}
        )

    def _names(self, framework: CacheFolder, python: Interpreter, paths: Iterable[str]) -> set[str]:
        known = tuple(self.packages(framework, python))
        places = self._places(python)
        return {places.name(path) for path in paths if not path.startswith(known)}

    def _places(self, python: Interpreter) -> Places:
        return Places.of(python, self._cwd)

    def _digest(self, path: str) -> str:
        try:
            # Whatever else is there now, such as a pipe, might be read for ever.
            return file_digest(Path(path), self._memo) if Path(path).is_file() else _GONE
        except FileNotFoundError:
            return _GONE
