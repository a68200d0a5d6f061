"""Triton: what it compiles, kept as artifacts under a key that says more than its own.

Triton asks a cache manager for each kernel, by a digest over the kernel's source with all that it
calls, its signature and constants, the target, the options, and Triton itself. This is such a
manager. It trusts that digest to tell kernels apart, and adds what it leaves out.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from trivet import log
from trivet.cache import Artifact, ArtifactLease, Cache, Failed, Hit
from trivet.cache.artifact import remove_with
from trivet.cache.coordinator import WAIT_SECONDS
from trivet.errors import CorruptEntry, TrivetError
from trivet.keys import FieldValue, Key
from trivet.plans.environment import significant
from trivet.plans.facts.machine import compilers, graphics
from trivet.plans.facts.triton import COMPILERS, ENVIRONMENT, PACKAGE, PLUGINS, PROGRAMS
from trivet.plans.host import read_host
from trivet.plans.installed import Installed, file_digest, missing
from trivet.plans.memo import CacheMemo
from trivet.plans.triton_references import count_references

if TYPE_CHECKING:
    from types import TracebackType

_SPACE = "kernel/1"
_TAGS = ("framework=triton",)
_TOOLS = ("ptxas", "ptxas_blackwell")
_DETAIL = ("name", "target", "num_warps", "num_stages", "num_ctas", "triton_version")
# Targets whose code depends on nothing of the machine that compiles.
_PORTABLE = frozenset({"nvidia", "amd"})


class TritonKernels:
    """While it is entered, Triton keeps its kernels in ``cache``, verified, for all processes.

    ::

        with TritonKernels(Cache.open()):
            serve()

    Kernels that are compiled for a target without a GPU, by ``triton.compile``, are found by a host
    that has one. Of all processes that want one kernel, one compiles it. Processes that are started
    by others, such as Inductor's workers, are not reached; use ``trivet exec`` for these.

    Args:
        cache: where kernels are kept.
        wait: seconds to wait for another process that compiles the same kernel.
    """

    def __init__(self, cache: Cache, *, wait: float = WAIT_SECONDS) -> None:
        self._cache = cache
        self._wait = wait
        self._memo = CacheMemo(cache)
        self._installed = Installed(PACKAGE)
        self._leases: dict[tuple[bytes, int], ArtifactLease] = {}
        self._before: list[tuple[dict[str, Any], Callable[[], None]]] = []
        self._made: list[Artifact] = []  # whose files, where nobody keeps them, live as long
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        """Raises `MissingExtra` without Triton, `BackendError` where its build can't be told."""
        try:
            from triton import knobs
        except ModuleNotFoundError as error:
            raise missing(PACKAGE, f"can't be imported: {error}") from error
        self._installed.facts(self._memo)
        from triton.runtime import jit

        self._before.append((dict(knobs.cache.__dict__), count_references(jit)))
        knobs.cache.manager_class = self.manager
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from triton import knobs

        before, put_back = self._before.pop()
        put_back()
        knobs.cache.__dict__.pop("manager_class", None)
        if "manager_class" in before:
            knobs.cache.manager_class = before["manager_class"]
        for lease in list(self._leases.values()):
            lease.abandon()
        self._leases.clear()

    def manager(self, key: str, override: bool = False, dump: bool = False) -> Any:
        """The manager of one kernel; what people write and read themselves stays in its folder."""
        if override or dump:
            from triton.runtime.cache import FileCacheManager

            return FileCacheManager(key, override=override, dump=dump)
        return _Files(self, key)

    # -- for `_Files`, as is `key` ----------------------------------------------------------------

    def _look_up(self, key: Key) -> Artifact | ArtifactLease | None:
        """What is kept, verified, or the right to make it; None where there is neither."""
        # What this thread began before ended with an error, or it would not ask again.
        earlier = self._leases.pop((key.digest, threading.get_ident()), None)
        if earlier is not None:
            earlier.abandon()
        for _ in range(2):
            try:
                found = self._cache.acquire_files(key, tags=_TAGS, wait=self._wait)
            except Exception as error:  # noqa: BLE001  a leader's error, whatever it was
                log.warning("a kernel is not kept: %s", error)
                return None
            if isinstance(found, ArtifactLease):
                self._leases[key.digest, threading.get_ident()] = found
                return found
            if isinstance(found, Hit) and self._is_sound(found.value):
                return found.value
            if isinstance(found, Failed):
                return None
        return None

    def _commit(self, lease: ArtifactLease, detail: dict[str, object]) -> Path | None:
        """Where the files lie that were written under the lease; None where they could not be kept,
        which is logged, and are gone."""
        self._leases.pop((lease.key.digest, threading.get_ident()), None)
        try:
            made = lease.commit(group="triton", detail=detail)
            folder = made.verify()
        except (TrivetError, OSError) as error:
            log.warning("a kernel is not kept: %s", error)
            return None
        self._made.append(made)
        return folder

    def _give_up(self, lease: ArtifactLease, error: OSError) -> None:
        """What was to be written under the lease can't be."""
        log.warning("a kernel is not kept: %s", error)
        self._leases.pop((lease.key.digest, threading.get_ident()), None)
        lease.abandon()

    def _unkept(self) -> Path:
        """A new folder for files that nobody keeps, which goes with this object."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="trivet-triton-"))
            remove_with(self, self._folder)
        return Path(tempfile.mkdtemp(dir=self._folder))

    def key(self, kernel: str, file: str, *, of_this_machine: bool) -> Key:
        """The key of what Triton calls ``file`` under its own key ``kernel``.

        With ``of_this_machine``, of what may depend on its processors, drivers and C compiler.
        """
        from triton import knobs
        from triton.backends import backends

        host = read_host(os.environ)
        memo = self._memo
        facts = self._installed.facts(memo)
        tools = (getattr(knobs.nvidia, name, None) for name in _TOOLS)
        named = [os.environ.get(name, "") for name in PROGRAMS]
        named += [each for name in PLUGINS for each in os.environ.get(name, "").split(os.pathsep)]
        fields: dict[str, FieldValue] = {
            "kernel": kernel,
            "file": file,
            "triton": msgspec.to_builtins(facts),
            "python": sys.implementation.cache_tag,
            "assemblers": tuple(file_digest(Path(tool.path), memo) for tool in tools if tool),
            "named_files": tuple(
                file_digest(Path(each), memo) for each in named if each and Path(each).is_file()
            ),
            "environment": significant(host.environment, ENVIRONMENT),
        }
        if of_this_machine or not backends.keys() <= _PORTABLE:
            fields["host"] = {
                "system": host.system,
                "machine": host.machine,
                "instruction_set": host.instruction_set,
                "libc": host.libc,
            }
            fields["graphics"] = graphics()
            fields["compilers"] = compilers(COMPILERS, host.environment, memo)
        return Key(_SPACE, fields)

    def _is_sound(self, artifact: Artifact) -> bool:
        try:
            artifact.verify()
        except (CorruptEntry, OSError) as error:
            if isinstance(error, CorruptEntry):
                self._cache.quarantine_files(artifact, error.message)
            return False
        return True


class _Files:
    """What Triton calls a cache manager: the files of one of its keys.

    A kernel is a group of files that are written one by one and then declared complete. Anything
    else, such as a launcher or the result of tuning, is one file.
    """

    def __init__(self, kernels: TritonKernels, kernel: str) -> None:
        self._kernels = kernels
        self._kernel = kernel
        self._folder: Path | None = None  # of files that this process made and nobody keeps
        self._group: ArtifactLease | None = None
        self._written: dict[str, bytes] = {}  # of the group, until it is kept
        self._single: dict[str, ArtifactLease] = {}

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Name to path of a complete kernel; None where it has to be compiled."""
        found = self._look_up(filename, of_this_machine=False)
        if isinstance(found, Artifact):
            return {each.name: str(found.verify() / each.name) for each in found.manifest.files}
        self._group = found
        if found is not None:
            weakref.finalize(self, found.abandon)  # if compiling fails
        return None

    def get_file(self, filename: str) -> str | None:
        """The path of a file that stands for itself, or of one of an unfinished group."""
        if self._group is not None:
            path = self._group.staging / filename
            return str(path) if path.exists() else None
        found = self._look_up(filename, of_this_machine=True)
        if isinstance(found, Artifact):
            return str(found.verify() / filename)
        if found is not None:
            self._single[filename] = found
            weakref.finalize(self, found.abandon)
        return None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Write a file; returns where it lies."""
        content = data if isinstance(data, bytes) else str(data).encode()
        lease = self._single.pop(filename, None)
        if lease is not None:
            if self._write(lease, filename, content):
                folder = self._kernels._commit(lease, {"file": filename})
                if folder is not None:
                    return str(folder / filename)
        elif self._group is not None:
            self._written[filename] = content
            if self._write(self._group, filename, content):
                return str(self._group.staging / filename)
            self._unkept()
        path = self._own() / filename
        path.write_bytes(content)
        return str(path)

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        """All files of the kernel are there. ``group`` is led to where they are kept."""
        folder = self._folder
        if self._group is not None:
            lease, self._group = self._group, None
            folder = self._kernels._commit(lease, _detail(lease.staging / filename))
            if folder is None or not all((folder / name).exists() for name in self._written):
                folder = self._unkept()
        if folder is not None:
            for name in group:
                group[name] = str(folder / name)
        self._written.clear()
        return ""

    def _look_up(self, filename: str, *, of_this_machine: bool) -> Artifact | ArtifactLease | None:
        try:
            key = self._kernels.key(self._kernel, filename, of_this_machine=of_this_machine)
        except (TrivetError, OSError, ValueError) as error:
            log.warning("a kernel is not kept: %s", error)
            return None
        return self._kernels._look_up(key)

    def _write(self, lease: ArtifactLease, filename: str, content: bytes) -> bool:
        try:
            (lease.staging / filename).write_bytes(content)
        except OSError as error:
            self._kernels._give_up(lease, error)
            return False
        return True

    def _unkept(self) -> Path:
        """Where all of the group lies that was written so far, though nobody keeps it."""
        self._group = None
        for name, content in self._written.items():
            (self._own() / name).write_bytes(content)
        return self._own()

    def _own(self) -> Path:
        if self._folder is None:
            self._folder = self._kernels._unkept()
        return self._folder


def _detail(metadata: Path) -> dict[str, object]:
    """What people want to know of a kernel, out of Triton's own description."""
    try:
        told = msgspec.json.decode(metadata.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return {}
    return {name: told[name] for name in _DETAIL if name in told}
