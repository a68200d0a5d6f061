"""How one variant of one model becomes executable: from the cache, by compiling, or uncompiled."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trivet import log
from trivet.cache import Artifact, ArtifactLease, Cache, Failed, Hit
from trivet.codecs import Bytes
from trivet.errors import CorruptEntry, MissingExtra
from trivet.keys import Key
from trivet.plans import canary
from trivet.plans.backend import Backend, Built, Executable, FailureKind
from trivet.plans.canary import CanaryMismatch
from trivet.plans.errors import ModelChanged, PlanFailed
from trivet.plans.graph import unchanged
from trivet.plans.host import HostFacts
from trivet.plans.model import Dimension, GraphId
from trivet.plans.report import StartReport

_ATTEMPTS = 3
PLAN_FOLDER = "plan"


class Source(enum.StrEnum):
    """Where an executable came from."""

    CACHE = "cache"
    COMPILED = "compiled"
    UNCOMPILED = "uncompiled"


class OnFailure(enum.StrEnum):
    """What to do where a plan can't be made."""

    FALLBACK = "fallback"  # run the model uncompiled
    REFUSE = "refuse"  # raise `PlanFailed`


class CanaryMode(enum.StrEnum):
    """When a loaded plan's canary is run. A plan that is being made is always checked."""

    FIRST = "first"  # at its first load on this machine
    ALWAYS = "always"
    NEVER = "never"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The caller's choices."""

    on_failure: OnFailure = OnFailure.FALLBACK
    canary: CanaryMode = CanaryMode.FIRST
    wait: float = 600.0
    failure_lifetime: float = 24 * 3600.0


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One variant of one model on one backend.

    Attributes:
        bound: key with this machine's instruction set.
        portable: key of a plan that holds for every machine of the architecture.
        keepable: False where the instruction set can't be told, so that nothing bound to it may be
            kept.
    """

    model: Path
    graph: GraphId
    shapes: Mapping[str, tuple[Dimension, ...]]
    bound: Key
    portable: Key
    keepable: bool
    tags: tuple[str, ...]
    group: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """An executable, where it came from, and why it had to be made (empty for a hit)."""

    executable: Executable
    source: Source
    key: Key
    reason: str = ""
    error: str = ""
    artifact: Artifact | None = None  # holds the files of a plan that could not be stored


class _CompileFailed(Exception):
    """What those who waited for a compile get when it failed and may succeed another time."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.__cause__ = cause


class _Verification(threading.Thread):
    """Reads and hashes an artifact's files while something else goes on."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(name="trivet-verify", daemon=True)
        self._artifact = artifact
        self._error: Exception | None = None

    def run(self) -> None:
        """Verify; an error is kept for `folder`."""
        try:
            self._artifact.verify()
        except Exception as error:  # noqa: BLE001  raised again in the thread that asks
            self._error = error

    def folder(self) -> Path:
        """The verified folder, after the thread ended. Raises what `Artifact.verify` raised."""
        if self._error is not None:
            raise self._error
        return self._artifact.verify()


class Loader:
    """Gets variants ready for one backend."""

    def __init__(self, cache: Cache, backend: Backend, policy: Policy, host: HostFacts) -> None:
        self._cache = cache
        self._backend = backend
        self._policy = policy
        self._host = host

    def load(self, target: Target, report: StartReport) -> Loaded:
        """The executable for ``target``.

        Raises:
            PlanFailed: it can't be compiled and the policy is to refuse.
            ModelChanged: the model's files changed while they were being compiled.
            MissingExtra: the framework is not installed.
        """
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                with report.phase("look up"):
                    found = self._cache.acquire_files(
                        target.bound,
                        also=(target.portable,),
                        tags=target.tags,
                        wait=self._policy.wait,
                    )
            except _CompileFailed as error:
                cause = error.__cause__
                return self._without_plan(
                    target,
                    report,
                    type(cause).__qualname__,
                    str(cause),
                    "failed while this waited",
                    cause=cause,
                )
            if isinstance(found, Failed):
                return self._without_plan(
                    target, report, found.error_class, found.error_text, "failed before"
                )
            if isinstance(found, ArtifactLease):
                return self._compile(found, target, report, reason or str(found.reason))
            loaded = self._from_cache(found, report, target)
            if isinstance(loaded, Loaded):
                return loaded
            reason = loaded
        return self._without_plan(
            target, report, "CorruptEntry", reason or "replaced by others", "can't be loaded"
        )

    # -- from the cache ------------------------------------------------------------------------

    def _from_cache(
        self, found: Hit[Artifact], report: StartReport, target: Target
    ) -> Loaded | str:
        """The stored plan; or, when it had to be set aside, why."""
        artifact = found.value
        try:
            with report.phase("verify and import"):
                verification = _Verification(artifact)
                verification.start()
                try:
                    self._backend.warm_import()
                finally:
                    verification.join()
                folder = verification.folder()
            with artifact.loading():
                with report.phase("load"):
                    executable = self._backend.load(
                        folder / PLAN_FOLDER, artifact.descriptor.detail
                    )
                with report.phase("canary"):
                    self._check_canary(artifact, folder, executable, target)
        except (MissingExtra, MemoryError):
            raise
        except OSError as error:
            return self._unreadable(artifact, error, target, report)
        except CorruptEntry as error:
            return self._set_aside(artifact, error.message, "corrupt")
        except CanaryMismatch as error:
            return self._set_aside(artifact, error.message, "canary")
        except Exception as error:  # noqa: BLE001  frameworks raise anything for a plan they refuse
            detail = f"the backend can't load it: {error}"
            return self._set_aside(artifact, detail, "can't be loaded")
        return Loaded(
            executable=executable, source=Source.CACHE, key=artifact.key, artifact=artifact
        )

    def _unreadable(
        self, artifact: Artifact, error: OSError, target: Target, report: StartReport
    ) -> Loaded | str:
        """Without the plan where this process is to blame: no descriptor left, no right to read."""
        store = self._cache.store
        if isinstance(error, FileNotFoundError) or (
            store is not None and not artifact.is_stored(store)
        ):
            return self._set_aside(artifact, f"the files can't be read: {error}", "can't be loaded")
        return self._without_plan(
            target,
            report,
            type(error).__qualname__,
            str(error),
            "can't be read now",
            cause=error,
        )

    def _set_aside(self, artifact: Artifact, detail: str, reason: str) -> str:
        """``reason``, or nothing where the files are only gone because others replaced them."""
        return reason if self._cache.quarantine_files(artifact, detail) else ""

    def _check_canary(
        self, artifact: Artifact, folder: Path, executable: Executable, target: Target
    ) -> None:
        stored = folder / canary.FILE_NAME
        mode = self._policy.canary
        if mode is CanaryMode.NEVER or not stored.exists():
            return
        passed = self._passed_key(artifact)
        if mode is CanaryMode.FIRST and isinstance(self._cache.get(passed, Bytes()), Hit):
            return
        from trivet.codecs import Arrays

        inputs = canary.canary_inputs(executable.inputs, target.shapes)
        expected = Arrays().decode(memoryview(stored.read_bytes()))
        if inputs is None or not canary.matches(
            executable.run(inputs), expected, self._backend.tolerance()
        ):
            raise CanaryMismatch("the stored plan gives another result than when it was made")
        self._remember_passed(artifact)

    def _passed_key(self, artifact: Artifact) -> Key:
        """Says that one artifact was right on this machine as it is now."""
        return Key(
            "canary/1",
            {
                "plan": artifact.key.digest,
                "files": tuple(each.blake3 for each in artifact.manifest.files),
                "instruction_set": self._host.instruction_set,
                "libc": self._host.libc,
            },
        )

    def _remember_passed(self, artifact: Artifact) -> None:
        self._cache.get_or_compute(self._passed_key(artifact), bytes, Bytes(), wait=0.0)

    # -- making it -----------------------------------------------------------------------------

    def _compile(
        self, lease: ArtifactLease, target: Target, report: StartReport, reason: str
    ) -> Loaded:
        backend = self._backend
        with lease:
            try:
                with report.phase("import"):
                    backend.warm_import()
                plan_folder = lease.staging / PLAN_FOLDER
                plan_folder.mkdir()
                inputs = canary.canary_inputs(target.graph.inputs, target.shapes)
                with report.phase("compile"):
                    built = backend.compile(
                        target.model, target.graph, target.shapes, plan_folder, inputs
                    )
                with report.phase("canary"):
                    self._check_made(built, inputs, lease.staging)
            except MissingExtra:
                raise
            except Exception as error:  # noqa: BLE001  classified by the backend
                return self._compile_failed(lease, error, target, report, reason)
            self._require_unchanged(target)
            with report.phase("publish"):
                key = target.portable if built.portable else target.bound
                if built.portable or target.keepable:
                    artifact = lease.commit(
                        key=key,
                        cost=report.ms("compile") / 1e3,
                        group=target.group,
                        detail=built.detail,
                    )
                    self._remember_passed(artifact)
                else:
                    artifact = lease.drop("the instruction set of this machine can't be told")
        return Loaded(
            executable=built.executable,
            source=Source.COMPILED,
            key=key,
            reason=reason,
            artifact=artifact,
        )

    def _check_made(self, built: Built, inputs: Mapping[str, Any] | None, staging: Path) -> None:
        """The plan as it was written gives what the model gave; that is kept beside it."""
        if inputs is None or built.expected is None:
            return
        result = canary.check_fresh(
            built.executable, inputs, built.expected, self._backend.tolerance()
        )
        if result is not None:
            (staging / canary.FILE_NAME).write_bytes(result)

    def _compile_failed(
        self,
        lease: ArtifactLease,
        error: Exception,
        target: Target,
        report: StartReport,
        reason: str,
    ) -> Loaded:
        # A file that was half written, or of which the canary saw another content than the
        # compiler did, says nothing about the model that this key stands for.
        self._require_unchanged(target)
        deterministic = isinstance(error, CanaryMismatch) or (
            self._backend.classify(error) is FailureKind.DETERMINISTIC
        )
        if deterministic:
            lease.refuse(error, lifetime=self._policy.failure_lifetime)
        else:
            lease.abandon(_CompileFailed(error))
        log.warning("%s can't be compiled by %s: %s", target.model, self._backend.name, error)
        return self._without_plan(
            target, report, type(error).__qualname__, str(error), reason, cause=error
        )

    def _require_unchanged(self, target: Target) -> None:
        if not unchanged(target.graph):
            raise ModelChanged(
                f"{target.model} changed while it was being compiled",
                hint="replace model files by rename, not by writing into them",
            )

    def _without_plan(
        self,
        target: Target,
        report: StartReport,
        error_class: str,
        error_text: str,
        reason: str,
        cause: BaseException | None = None,
    ) -> Loaded:
        if self._policy.on_failure is OnFailure.REFUSE:
            raise PlanFailed(
                f"{self._backend.name} has no plan for {target.model}: {error_class}: {error_text}",
                error_class=error_class,
                error_text=error_text,
                hint="use another backend or option, or on_failure='fallback' to run uncompiled",
            ) from cause
        with report.phase("import"):
            self._backend.warm_import()
        with report.phase("load"):
            executable = self._backend.fallback(target.model, target.shapes)
        self._require_unchanged(target)
        return Loaded(
            executable=executable,
            source=Source.UNCOMPILED,
            key=target.bound,
            reason=reason,
            error=f"{error_class}: {error_text}",
        )
