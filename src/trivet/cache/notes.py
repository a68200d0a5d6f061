"""What a host remembers about the shared tier, in a folder that its processes share.

Pairs: of each tag, the last epoch seen in the shared tier and this host's own epoch at that time.
They say two things that a process which starts while the shared tier is out of reach could not
know: that a tag was invalidated elsewhere, and that it was invalidated here and nowhere else.

Refusals: contents that this host found unusable, although they are what was stored.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
from blake3 import blake3

Pairs: TypeAlias = dict[str, tuple[int, int]]

_MOST_TAGS = 1 << 16
_UNSEEN = -1
_decode = msgspec.msgpack.Decoder(dict[str, tuple[int, int]]).decode


class Notes:
    """The notes of one host on one shared tier.

    Args:
        folder: where they are kept; None to remember in this process alone.
        where: which shared tier; another one has other epochs.
    """

    def __init__(self, folder: Path | None, where: str) -> None:
        self._folder = None if folder is None else folder / blake3(where.encode()).hexdigest()[:16]
        self._pairs: Pairs = {}
        self._stamp: tuple[int, int] = (0, 0)
        self._refused: set[str] = set()

    def pairs(self) -> Pairs:
        """What is remembered, by any process of this host."""
        if self._folder is not None:
            with suppress(OSError, ValueError):
                facts = os.stat(self._folder / "epochs")
                stamp = (facts.st_ino, facts.st_mtime_ns)
                if stamp != self._stamp:
                    self._pairs = _decode((self._folder / "epochs").read_bytes())
                    self._stamp = stamp
        return self._pairs

    def remember(self, seen: Mapping[str, int], here: Mapping[str, int]) -> Pairs:
        """Note the shared epochs ``seen``, with this host's own; returns all pairs.

        A pair is replaced only when the shared epoch is another one.
        """
        known = self.pairs()
        if all(tag in known and known[tag][0] == epoch for tag, epoch in seen.items()):
            return known
        return self._change(seen, here)

    def distrust(self, tags: Iterable[str], here: Mapping[str, int]) -> None:
        """Note that ``tags`` are about to be invalidated on this host alone; ``here`` from before.

        Of a tag that has no pair yet, the shared epoch to distrust is the first one to be seen.
        """
        known = self.pairs()
        self._change({tag: _UNSEEN for tag in tags if tag not in known}, here)

    def agree(self, seen: Mapping[str, int], here: Mapping[str, int]) -> None:
        """Note that the shared epochs ``seen`` were made together with this host's, ``here``."""
        self._change(seen, here, together=True)

    def _change(
        self, seen: Mapping[str, int], here: Mapping[str, int], *, together: bool = False
    ) -> Pairs:
        known = self.pairs()
        if self._folder is None:
            self._pairs = _merged(known, seen, here, together)
            return self._pairs
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self._folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                pairs = _merged(self.pairs(), seen, here, together)
                fresh = self._folder / "epochs.part"
                fresh.write_bytes(msgspec.msgpack.encode(pairs))
                os.replace(fresh, self._folder / "epochs")
        except OSError:
            pairs = _merged(known, seen, here, together)  # a folder that can't be written
        self._pairs = pairs
        return pairs

    def refuse(self, digest: bytes, payload: bytes | memoryview) -> None:
        """This content must not come back from the shared tier under this digest."""
        name = _refusal(digest, payload)
        self._refused.add(name)
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / "refused").mkdir(mode=0o700, parents=True, exist_ok=True)
                (self._folder / "refused" / name).touch(mode=0o600)

    def is_refused(self, digest: bytes, payload: bytes | memoryview) -> bool:
        """Whether `refuse` was called for it, by any process of this host."""
        name = _refusal(digest, payload)
        return name in self._refused or (
            self._folder is not None and (self._folder / "refused" / name).exists()
        )


def _refusal(digest: bytes, payload: bytes | memoryview) -> str:
    return blake3(digest + bytes(payload)).hexdigest()


def _merged(
    known: Pairs, seen: Mapping[str, int], here: Mapping[str, int], together: bool
) -> Pairs:
    pairs = dict(known)
    for tag, epoch in seen.items():
        if together:
            pairs.pop(tag, None)
        if tag not in pairs or pairs[tag][0] != epoch:
            # To the end: the newest are kept.
            old = pairs.pop(tag, None)
            first = old is not None and old[0] == _UNSEEN
            pairs[tag] = (epoch, old[1] if old is not None and first else here.get(tag, 0))
    return dict(list(pairs.items())[-_MOST_TAGS:])
