"""How one variant of one model becomes executable: from the cache, by compiling, or uncompiled."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from trivet.cache import Artifact, ArtifactLease, Cache, Failed, Hit
from trivet.entries import Failure
from trivet.errors import CorruptEntry, MissingExtra
from trivet.plans import canary
from trivet.plans.backend import Backend, Executable, has_external_weights
from trivet.plans.canary import CanaryMismatch
from trivet.plans.errors import NOT_WORTH_KEEPING, ModelChanged, PlanFailed, recorded_reason
from trivet.plans.host import HostFacts
from trivet.plans.maker import (
    PLAN_FOLDER,
    CanaryLog,
    MakeFailed,
    Maker,
    require_unchanged,
)
from trivet.plans.outcome import CanaryMode, Loaded, LoadOptions, OnFailure, Source, Target
from trivet.plans.report import StartReport

_ATTEMPTS = 3


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

    def __init__(
        self, cache: Cache, backend: Backend, options: LoadOptions, host: HostFacts
    ) -> None:
        self._cache = cache
        self._backend = backend
        self._options = options
        self._passed = CanaryLog(cache, host)

    def load(self, target: Target, report: StartReport) -> Loaded:
        """The executable for ``target``.

        Raises:
            PlanFailed: it can't be compiled and the choice is to refuse.
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
                        wait=self._options.wait,
                        waiting=self._import_ahead,
                    )
            except MakeFailed as failed:
                return self._without(target, report, "failed while this waited", failed.cause)
            if isinstance(found, Failed):
                failure = Failure(found.error_class, found.error_text)
                reason = recorded_reason(found.error_class)
                return self._without_plan(target, report, reason, failure)
            if isinstance(found, ArtifactLease):
                return self._make(found, target, report, reason or str(found.reason))
            loaded = self._from_cache(found, report, target)
            if isinstance(loaded, Loaded):
                return loaded
            reason = loaded
        failure = Failure(CorruptEntry.__qualname__, reason or "replaced by others")
        return self._without_plan(target, report, "can't be loaded", failure)

    def _import_ahead(self) -> None:
        """While somebody else compiles: the framework is needed, however that ends."""
        with suppress(Exception):  # it comes again where the framework is used
            self._backend.warm_import()

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
                if has_external_weights(self._backend):
                    with report.phase("weights"):
                        self._backend.bind(executable, target.model, target.graph)
                with report.phase("canary"):
                    self._check_canary(artifact, folder, executable, target)
        except (MissingExtra, MemoryError, ModelChanged):
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
        if isinstance(error, FileNotFoundError) or not self._cache.holds(artifact):
            return self._set_aside(artifact, f"the files can't be read: {error}", "can't be loaded")
        return self._without(target, report, "can't be read now", error)

    def _set_aside(self, artifact: Artifact, detail: str, reason: str) -> str:
        """``reason``, or nothing where the files are only gone because others replaced them."""
        return reason if self._cache.quarantine_files(artifact, detail) else ""

    def _check_canary(
        self, artifact: Artifact, folder: Path, executable: Executable, target: Target
    ) -> None:
        stored = folder / canary.file_name(target.bound_weights)
        mode = self._options.canary
        if mode is CanaryMode.NEVER or not canary.is_kept(folder):
            return
        if mode is CanaryMode.FIRST and self._passed.has(artifact, target.bound_weights):
            return
        from trivet.codecs import Arrays

        inputs = canary.canary_inputs(executable.inputs, target.shapes)
        if not stored.exists():
            # It was made with other weights, whose result says nothing about these. That it runs
            # does say something: a plan that ends the process must end it while it is loading.
            if inputs is not None:
                executable.run(inputs)
            self._passed.add(artifact, target.bound_weights)
            return
        expected = Arrays().decode(memoryview(stored.read_bytes()))
        if inputs is None or not canary.matches(
            executable.run(inputs), expected, self._backend.tolerance()
        ):
            raise CanaryMismatch("the stored plan gives another result than when it was made")
        self._passed.add(artifact, target.bound_weights)

    # -- otherwise -----------------------------------------------------------------------------

    def _make(
        self, lease: ArtifactLease, target: Target, report: StartReport, reason: str
    ) -> Loaded:
        maker = Maker(self._backend, self._options, self._passed)
        try:
            return maker.make(lease, target, report, reason)
        except MakeFailed as failed:
            return self._without(target, report, reason, failed.cause)

    def _without(
        self, target: Target, report: StartReport, reason: str, cause: Exception
    ) -> Loaded:
        failure = Failure(type(cause).__qualname__, str(cause))
        return self._without_plan(target, report, reason, failure, cause)

    def _without_plan(
        self,
        target: Target,
        report: StartReport,
        reason: str,
        failure: Failure,
        cause: Exception | None = None,
    ) -> Loaded:
        """The model itself, for ``failure``; or `PlanFailed`, where the choice is to refuse."""
        told = f"{failure.error_class}: {failure.text}"
        refuse = self._options.on_failure is OnFailure.REFUSE
        if refuse and recorded_reason(failure.error_class) != NOT_WORTH_KEEPING:
            raise PlanFailed(
                f"{self._backend.name} has no plan for {target.model}: {told}",
                error_class=failure.error_class,
                error_text=failure.text,
                hint="use another backend or option, or on_failure='fallback' to run uncompiled",
            ) from cause
        with report.phase("import"):
            self._backend.warm_import()
        with report.phase("load"):
            executable = self._backend.fallback(target.model, target.shapes)
        require_unchanged(target)
        return Loaded(
            executable=executable,
            source=Source.UNCOMPILED,
            key=target.bound,
            reason=reason,
            error=told,
        )
