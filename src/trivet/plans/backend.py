"""What a backend is: the one seam through which plans meet a framework.

`trivet.testing.BackendContract` is the test suite that a new backend must pass.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard

import msgspec

from trivet.keys import FieldValue
from trivet.plans.host import HostFacts
from trivet.plans.model import Dimension, GraphId, TensorInfo

if TYPE_CHECKING:
    from trivet.plans.memo import Memo
    from trivet.plans.model import Array, Arrays


class FailureKind(enum.StrEnum):
    """What a failed compile means for the next attempt."""

    DETERMINISTIC = "deterministic"  # unsupported or invalid: recorded, not tried again
    TRANSIENT = "transient"  # out of memory, disk full, killed: never recorded


class Severity(enum.StrEnum):
    """How bad a finding is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True):
    """Something that the doctor should say: what is the case, and what to do about it."""

    severity: Severity
    code: str  # stable, kebab-case
    message: str
    hint: str = ""


class BackendFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A framework as installed, found without importing it.

    Attributes:
        version: of the distribution, with its build if it has one.
        libraries: file name to BLAKE3 hex of the core shared libraries (memoised by stat).
        record: BLAKE3 hex over what the wheel says it installed; empty for source builds.
    """

    version: str
    libraries: dict[str, str]
    record: str = ""


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What `Backend.compile` left in the staging folder.

    Attributes:
        executable: ready to run, made from the files just written, not from the source model.
        portable: True when the plan holds for every machine of this architecture; it is then kept
            under a key without the instruction set.
        detail: facts for people and for `Backend.load`; plain MessagePack types.
        seconds: that compiling took, without loading back; 0 for unknown.
        expected: what the model gave for the canary, as compiled in memory, before it was written;
            None if it was not asked or does not take these inputs.
    """

    executable: Executable
    portable: bool = False
    detail: dict[str, object] = {}
    seconds: float = 0.0
    expected: Arrays | None = None


class Executable(Protocol):
    """A loaded plan or an uncompiled model. `run` may be called from any thread."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]

    def run(self, inputs: Arrays) -> dict[str, Array]:
        """All outputs by name. The arrays returned are the caller's own."""

    @property
    def native(self) -> Any:
        """The framework's own object, for what this interface does not offer."""


class ExternalWeights(Protocol):
    """What a backend has beside `Backend` when its plans hold no weights.

    The key of such a plan does not name the weights, so models that differ in nothing else share
    it, and `Backend.load` gives an executable that can't run before it was bound.
    """

    weights: Literal["external"]

    def bind(self, executable: Executable, model: Path, graph: GraphId) -> None:
        """Give ``executable`` the weights in ``model``, read and verified as they are bound.

        Raises `ModelChanged` when they are not those of ``graph``.
        """


class Backend(Protocol):
    """Compiles, loads and runs models of one framework, with one set of options.

    Constructors check options (unknown ones are a `BackendError`) and import nothing heavy. Only
    `warm_import`, `compile`, `load` and `fallback` import the framework.
    """

    name: str

    def facts(self, memo: Memo | None = None) -> BackendFacts:
        """The framework as installed; ``memo`` remembers digests of unchanged libraries.

        Raises `MissingExtra` when it is not installed.
        """

    def key_fields(self, host: HostFacts) -> Mapping[str, FieldValue]:
        """Everything but graph, shapes and instruction set that a plan depends on.

        The full dump of options as they will be applied, the framework's exact build, extension
        libraries by content, thread counts where they are baked in, the environment that it reads.
        """

    def accepts(self, model: Path) -> bool:
        """Whether this backend reads files like ``model`` (by suffix)."""

    def warm_import(self) -> None:
        """Import the framework, so that the caller can do something else meanwhile.

        May be called several times, also after it raised.
        """

    def compile(
        self,
        model: Path,
        graph: GraphId,
        shapes: Mapping[str, tuple[Dimension, ...]],
        staging: Path,
        canary: Arrays | None = None,
    ) -> Built:
        """Compile ``model`` for ``shapes``; inputs not named keep the shapes of the model.

        Writes only into ``staging``. ``canary`` is run on what was compiled before it is written,
        so that the engine can compare it with what is loaded back. Raises whatever the framework
        raises, but nothing for a canary that the model does not take.
        """

    def load(self, folder: Path, detail: Mapping[str, object]) -> Executable:
        """Load a plan from its verified, immutable folder."""

    def fallback(self, model: Path, shapes: Mapping[str, tuple[Dimension, ...]]) -> Executable:
        """The model without a kept plan: after a failure, and for shapes outside the rules."""

    def classify(self, error: BaseException) -> FailureKind:
        """What an exception from `compile` means."""

    def tolerance(self) -> tuple[float, float]:
        """Relative and absolute tolerance between two runs of one plan on one machine."""

    def lint(self) -> list[Finding]:
        """Options that do nothing or that switch caching off, environment that interferes."""


def runs_uncompiled(backend: object) -> bool:
    """Whether `Backend.fallback` is anything else than what `Backend.compile` makes.

    A backend whose framework runs nothing that it didn't compile says ``runs_uncompiled = False``.
    """
    return bool(getattr(backend, "runs_uncompiled", True))


def has_external_weights(backend: object) -> TypeGuard[ExternalWeights]:
    """Whether plans of ``backend`` hold no weights."""
    return getattr(backend, "weights", "inside") == "external"
