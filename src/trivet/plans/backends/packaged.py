"""What backends have in common whose framework is a package with compiled libraries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec

from trivet.errors import CorruptEntry
from trivet.plans.backend import BackendFacts, FailureKind, Finding
from trivet.plans.installed import Installed, Package, locate, not_installed
from trivet.plans.model import TensorInfo

if TYPE_CHECKING:
    from trivet.plans.memo import Memo


class PackagedBackend:
    """The parts of `Backend` that follow from the package and from the files that it reads.

    Attributes:
        package: the framework on disk.
        suffixes: of the files that it reads, in lower case.
    """

    package: ClassVar[Package]
    suffixes: ClassVar[tuple[str, ...]] = (".onnx",)

    def __init__(self) -> None:
        self._installed = Installed(self.package)

    def facts(self, memo: Memo | None = None) -> BackendFacts:
        """The framework as installed, read once. Raises `MissingExtra`."""
        return self._installed.facts(memo)

    def accepts(self, model: Path) -> bool:
        """Files by their suffix."""
        return model.suffix.lower() in self.suffixes

    def classify(self, error: BaseException) -> FailureKind:
        """What this package's errors refuse stays refused; what the machine lacked may come back,
        and so may anything that nobody has looked at."""
        from trivet.plans.backends.child import kind_of  # only after a failure

        return kind_of(error)

    def lint(self) -> list[Finding]:
        """Whether the framework is installed."""
        return [] if locate(self.package.module) else [not_installed(self.package)]


def require_size(path: Path, size: int, detail: Mapping[str, object]) -> None:
    """Raise `CorruptEntry` unless ``size`` is that which ``detail`` says.

    Frameworks crash of files that are cut, or run them.
    """
    if size != detail["size"]:
        raise CorruptEntry(f"{path} has {size} bytes, not {detail['size']}")


def signature(
    detail: Mapping[str, object],
) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Inputs and outputs, as ``detail`` has them."""
    tensors = tuple[TensorInfo, ...]
    return msgspec.convert(detail["inputs"], tensors), msgspec.convert(detail["outputs"], tensors)
