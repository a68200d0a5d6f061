"""May a stored entry be used? The one place where that is decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trivet.entries import Descriptor
from trivet.events import MissReason

_CLOCK_SLACK = 300.0  # seconds that the clocks of writer and reader may differ


def texts_of(given: Iterable[str], name: str = "tags=") -> tuple[str, ...]:
    """``given``, such as tags. Raises TypeError for one text: its letters would be taken."""
    if isinstance(given, str | bytes):
        raise TypeError(f"{name} takes several texts, such as [{given!r}], not {given!r}")
    return tuple(given)


def judge(
    descriptor: Descriptor,
    codec_id: str,
    now: float,
    epochs: Mapping[str, int],
    stale: float = 0.0,
) -> MissReason | None:
    """None when the entry may be used, else why not.

    ``epochs`` holds the current epoch of every tag of the descriptor; ``now`` is in seconds since
    the epoch. ``stale`` is for how many seconds after its lifetime the entry is accepted, as far as
    it allows that.
    """
    # Written so that a lifetime which is not a number counts as over. An entry from the future
    # means that the clock was set back: how long it has lived can't be known.
    expires = descriptor.expires
    if expires is not None:
        if stale:
            expires += min(stale, descriptor.stale)
        if not descriptor.created - _CLOCK_SLACK <= now < expires:
            return MissReason.EXPIRED
    tags = descriptor.tags
    if tags:
        for tag, epoch in tags.items():
            if epochs.get(tag) != epoch:
                return MissReason.INVALIDATED
    if descriptor.failure is None and descriptor.codec != codec_id:
        return MissReason.INCOMPATIBLE
    return None
