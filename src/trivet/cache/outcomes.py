"""What a look-up answers."""

from __future__ import annotations

from typing import Generic, TypeVar, final

import msgspec

from trivet.entries import Descriptor
from trivet.errors import ComputeFailed
from trivet.events import MissReason, Tier

T = TypeVar("T")


# Final, so that hot paths may ask for the type itself: `isinstance` of a struct is slow when the
# answer is no.
@final
class Hit(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A verified value: the key was compared, checksums and validity were checked.

    ``stale``: its lifetime is over, and it was asked for all the same.
    """

    value: T
    descriptor: Descriptor
    tier: Tier
    stale: bool = False


@final
class Failed(msgspec.Struct, frozen=True, gc=False):
    """A recorded failure answers: computing this failed, and nothing it depends on has changed."""

    descriptor: Descriptor
    tier: Tier

    @property
    def error_class(self) -> str:
        """Class name of the first error."""
        return self.descriptor.failure.error_class if self.descriptor.failure else ""

    @property
    def error_text(self) -> str:
        """Text of the first error."""
        return self.descriptor.failure.text if self.descriptor.failure else ""

    def error(self) -> ComputeFailed:
        """To be raised in the place of the first error."""
        return ComputeFailed(
            f"computing this failed before: {self.error_class}: {self.error_text}",
            error_class=self.error_class,
            error_text=self.error_text,
            hint="remove the record with Cache.forget to try again",
        )


@final
class Miss(msgspec.Struct, frozen=True, gc=False):
    """Nothing that may be used is stored, and why."""

    reason: MissReason
    detail: str = ""
