"""A memo of digests in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class DictMemo(dict[bytes, bytes]):
    """A `Memo` of one thread. Whoever gets a turn finds that ``meanwhile`` has happened, once."""

    meanwhile: Callable[[], object] = list

    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value

    @contextmanager
    def turn(self, key: bytes) -> Iterator[None]:
        meanwhile, self.meanwhile = self.meanwhile, list
        meanwhile()
        yield
