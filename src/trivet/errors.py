"""Every error that Trivet raises, in one tree.

Each message says what happened and why; ``hint`` says what to do about it and is shown on a line
of its own.
"""

from __future__ import annotations


class TrivetError(Exception):
    """Base of every error raised by this package."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments don't survive the default reduce; errors cross process pools.
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(
    cls: type[TrivetError], args: tuple[object, ...], state: dict[str, object]
) -> TrivetError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidKey(TrivetError, ValueError):
    """A key field has a name or value that has no canonical form."""


class Unkeyable(TrivetError, TypeError):
    """A value can't be part of a key: nobody said what it is made of.

    ``place`` is where in the whole value it is, such as ``"[3]['image']"``. ``names_call``: the
    message says of which function's argument it is a part.
    """

    place = ""
    names_call = False


class CorruptEntry(TrivetError):
    """Stored bytes are not what was written: bad magic, length, checksum or manifest."""


class IncompatibleEntry(TrivetError):
    """The entry is intact but of a format, codec or machine that this process can't use."""


class StoreError(TrivetError):
    """A store could not do what was asked of it."""


class StoreFull(StoreError):
    """No room is left on the device, or the value is larger than the store's budget."""


class StoreReadOnly(StoreError):
    """The store can be read but not written."""


class StoreUnavailable(StoreError):
    """The store can't be reached or opened at the moment."""


class UnsafeFolder(StoreError):
    """The cache folder could be written by somebody who must not be trusted."""


class LeaseLost(TrivetError):
    """The lease was already settled."""


class ComputeFailed(TrivetError):
    """A recorded failure answers this key: nothing it depends on has changed, so no new attempt.

    ``error_class`` and ``error_text`` are those of the first failure.
    """

    def __init__(
        self, message: str, *, error_class: str, error_text: str, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.error_class = error_class
        self.error_text = error_text


class MissingExtra(TrivetError, ImportError):
    """An optional dependency is not installed; the hint is the command that installs it."""


class ModelError(TrivetError):
    """The model file can't be read as what it claims to be."""


class ShapeError(TrivetError, ValueError):
    """A shape rule is malformed, or a request lies outside the rules."""


class ShapeOutside(ShapeError):
    """A well-formed request lies outside the shape rules; the model itself may well accept it."""


class BackendError(TrivetError):
    """A backend was configured with something that it can't honour."""
