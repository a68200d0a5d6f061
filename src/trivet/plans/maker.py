"""How a plan is made: compiled, checked, weighed, and published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trivet import log
from trivet.cache import Artifact, ArtifactLease, Cache, Hit
from trivet.codecs import Bytes
from trivet.errors import MissingExtra, TrivetError
from trivet.keys import FieldValue, Key
from trivet.plans import canary
from trivet.plans.backend import Backend, Built, FailureKind
from trivet.plans.canary import CanaryMismatch
from trivet.plans.errors import ModelChanged, NotWorthKeeping
from trivet.plans.graph import unchanged
from trivet.plans.host import HostFacts
from trivet.plans.outcome import Loaded, LoadOptions, Source, Target
from trivet.plans.report import StartReport

if TYPE_CHECKING:
    from trivet.plans.model import Arrays

PLAN_FOLDER = "plan"
# Bytes per second at which files that are not in memory are read and verified. An assumption, from
# experiments before this code; no benchmark here repeats it.
_COLD_READ = 0.9e9
_CHANGED = "what the plan depends on changed while it was compiled"


class MakeFailed(Exception):
    """There is no plan to keep; ``cause`` says why.

    Raised where the plan was made, after the lease was settled, and where somebody waited for it.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class CanaryLog:
    """Which artifacts gave the right canary on this machine as it is now, with which weights."""

    def __init__(self, cache: Cache, host: HostFacts) -> None:
        self._cache = cache.host_only  # it was this machine that was tested
        self._host = host

    def has(self, artifact: Artifact, bound_weights: bytes) -> bool:
        """Whether its canary was right with these weights (`Target.bound_weights`)."""
        return isinstance(self._cache.get(self._key(artifact, bound_weights), Bytes()), Hit)

    def add(self, artifact: Artifact, bound_weights: bytes) -> None:
        """Its canary was right."""
        self._cache.get_or_compute(self._key(artifact, bound_weights), bytes, Bytes(), wait=0.0)

    def _key(self, artifact: Artifact, bound_weights: bytes) -> Key:
        fields: dict[str, FieldValue] = {
            "plan": artifact.key.digest,
            "files": tuple(each.blake3 for each in artifact.manifest.files),
            "instruction_set": self._host.instruction_set,
            "libc": self._host.libc,
        }
        if bound_weights:
            fields["weights"] = bound_weights
        return Key("canary/1", fields)


def require_unchanged(target: Target) -> None:
    """Raise `ModelChanged` unless the model's files are those that were identified."""
    if not unchanged(target.graph):
        raise ModelChanged(
            f"{target.model} changed while it was being compiled",
            hint="replace model files by rename, not by writing into them",
        )


class Maker:
    """Makes plans for one backend."""

    def __init__(self, backend: Backend, options: LoadOptions, passed: CanaryLog) -> None:
        self._backend = backend
        self._options = options
        self._passed = passed

    def make(
        self, lease: ArtifactLease, target: Target, report: StartReport, reason: str
    ) -> Loaded:
        """Compile under ``lease`` and settle it.

        Raises:
            MakeFailed: it can't be compiled, or is not worth keeping.
            ModelChanged: the model's files changed meanwhile.
            MissingExtra: the framework is not installed.
        """
        with lease:
            try:
                built = self._compile(lease.staging, target, report)
                cost = built.seconds or report.ms("compile") / 1e3
                _require_worth(lease.staging, cost)
            except (MissingExtra, ModelChanged):
                raise
            except Exception as error:
                self._fail(lease, error, target)
                raise MakeFailed(error) from error
            require_unchanged(target)
            key = target.portable if built.portable else target.bound
            with report.phase("publish"):
                if not _is_still(target):
                    artifact = lease.drop(_CHANGED)
                elif built.portable or target.keepable:
                    artifact = lease.commit(
                        key=key, cost=cost, group=target.group, detail=built.detail
                    )
                    self._passed.add(artifact, target.bound_weights)
                else:
                    artifact = lease.drop("the instruction set of this machine can't be told")
        return Loaded(
            executable=built.executable,
            source=Source.COMPILED,
            key=key,
            reason=reason,
            artifact=artifact,
        )

    def _compile(self, staging: Path, target: Target, report: StartReport) -> Built:
        with report.phase("import"):
            self._backend.warm_import()
        folder = staging / PLAN_FOLDER
        folder.mkdir()
        inputs = canary.canary_inputs(target.graph.inputs, target.shapes)
        with report.phase("compile"):
            built = self._backend.compile(target.model, target.graph, target.shapes, folder, inputs)
        with report.phase("canary"):
            self._check(built, inputs, staging / canary.file_name(target.bound_weights))
        return built

    def _check(self, built: Built, inputs: Arrays | None, place: Path) -> None:
        """The plan as it was written gives what the model gave; that is kept in ``place``."""
        if inputs is None or built.expected is None:
            return
        result = canary.check_fresh(
            built.executable, inputs, built.expected, self._backend.tolerance()
        )
        if result is not None:
            place.write_bytes(result)

    def _fail(self, lease: ArtifactLease, error: Exception, target: Target) -> None:
        """Settle the lease: record what would fail again, and nothing else."""
        # A file that was half written, or of which the canary saw another content than the
        # compiler did, says nothing about the model that this key stands for.
        require_unchanged(target)
        if not _is_still(target):
            lease.abandon(MakeFailed(error))
        elif isinstance(error, CanaryMismatch | NotWorthKeeping) or (
            self._backend.classify(error) is FailureKind.DETERMINISTIC
        ):
            lease.refuse(error, lifetime=self._options.failure_lifetime)
        else:
            lease.abandon(MakeFailed(error))
        log.warning("%s: no plan of %s: %s", self._backend.name, target.model, error)


def _is_still(target: Target) -> bool:
    """Whether the key names what the plan was made with: another thread may have set a variable, or
    somebody have replaced a library."""
    try:
        return target.key_now() == target.bound
    except (TrivetError, OSError):
        return False


def _require_worth(staging: Path, cost: float) -> None:
    """Bytes to load are weighed against seconds to compile."""
    size = sum(each.stat().st_size for each in staging.rglob("*") if each.is_file())
    if size / _COLD_READ > cost:
        raise NotWorthKeeping(
            f"compiling takes {cost:.2f} s, reading {size / 1e6:.0f} MB back from a cold disk "
            f"{size / _COLD_READ:.2f} s"
        )
