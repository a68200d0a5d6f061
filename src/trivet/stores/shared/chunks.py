"""Large files in an object store, in chunks of their content: only what is new is sent.

Below the url's prefix::

    chunks/<blake3>     bytes of files, under the digest of their content
    recipes/<blake3>    of a file: its chunks, as MessagePack [[digest, length], ...]; written last

A chunk's name says what it holds, so two who send the same write the same. One that is in use is
removed only when its bytes were found to be others; see `collector` for those that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec
from blake3 import blake3

from trivet.entries import FileRecord
from trivet.errors import CorruptEntry, StoreError
from trivet.stores.bundles.chunks import Cutter
from trivet.stores.shared.marks import Marks
from trivet.stores.shared.requests import Requests

T = TypeVar("T")

Recipe: TypeAlias = "list[tuple[bytes, int]]"

MIN_BYTES, AVERAGE_BYTES, MAX_BYTES = 512 << 10, 2 << 20, 8 << 20
_AT_ONCE = 4
_decode = msgspec.msgpack.Decoder(list[tuple[bytes, int]]).decode


class Chunks:
    """The chunks and recipes of one object store."""

    def __init__(self, objects: Requests, marks: Marks) -> None:
        self._objects = objects
        self._marks = marks
        self._damaged: set[str] = set()

    def has(self, record: FileRecord) -> bool:
        """Whether there is a recipe for the file, and will be."""
        name = _recipe(record)
        return self._objects.size(name) is not None and not self._marks.has(name)

    def send(self, path: Path, record: FileRecord) -> int:
        """Send the chunks of a file that are not there, then its recipe; returns bytes sent.

        Raises `CorruptEntry` when the file is not what was recorded, `MissingExtra` when pyfastcdc
        is not installed.
        """
        recipe: Recipe = []
        sent = 0
        cutter = Cutter(MIN_BYTES, AVERAGE_BYTES, MAX_BYTES)
        with ThreadPoolExecutor(_AT_ONCE, "trivet-send") as pool:

            def jobs() -> Iterator[Callable[[], int]]:
                for chunk in cutter.cut_file(path, record):
                    recipe.append((chunk.digest, len(chunk.data)))
                    # A copy: the bytes are the cutter's until it goes on.
                    yield partial(self._send_one, chunk.digest, bytes(chunk.data))

            for size in few_at_once(pool, jobs()):
                sent += size
        self._objects.put(_recipe(record), msgspec.msgpack.encode(recipe))
        return sent

    def fetch(self, record: FileRecord) -> Iterator[bytes]:
        """The file's chunks, each verified.

        Raises `CorruptEntry` when one is missing or damaged; see `discard`.
        """
        raw = self._objects.get(_recipe(record))
        if raw is None:
            raise CorruptEntry(f"{record.name} is missing in the shared store")
        with ThreadPoolExecutor(_AT_ONCE, "trivet-fetch") as pool:
            recipe = decode_recipe(raw)
            if sum(size for _, size in recipe) != record.size:
                raise CorruptEntry(f"the recipe of {record.name} is not what was stored")
            jobs = (partial(self._fetch_one, digest, size) for digest, size in recipe)
            yield from few_at_once(pool, jobs)

    def discard(self, record: FileRecord) -> None:
        """Remove the recipe, and the chunks that `fetch` found damaged; others may be in use."""
        self._objects.remove(_recipe(record))
        while True:
            try:
                name = self._damaged.pop()
            except KeyError:  # all of them, or another thread was faster
                return
            self._objects.remove(name)

    def _send_one(self, digest: bytes, data: bytes) -> int:
        name = _chunk(digest)
        if self._objects.size(name) == len(data) and not self._marks.has(name):
            return 0
        if not self._objects.create(name, data):
            self._objects.put(name, data)  # of another length: damaged; or to be collected
        return len(data)

    def _fetch_one(self, digest: bytes, size: int) -> bytes:
        name = _chunk(digest)
        try:
            data = self._objects.get(name, 0, size)
        except StoreError:
            # A part of an empty object is an error to most stores, and says nothing against them.
            if self._objects.size(name) == size:
                raise
            data = None
        if data is None or blake3(data).digest() != digest:
            self._damaged.add(name)
            raise CorruptEntry(
                f"a chunk is not what was stored in the shared store: {digest.hex()}"
            )
        return data


def few_at_once(pool: ThreadPoolExecutor, jobs: Iterable[Callable[[], T]]) -> Iterator[T]:
    """The results in order; no more than a few are under way, or wait to be taken."""
    waiting: list[Future[T]] = []
    try:
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) > _AT_ONCE:
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
    finally:
        for each in waiting:
            each.cancel()


def decode_recipe(raw: bytes) -> Recipe:
    """The chunks of a file. Raises `CorruptEntry`."""
    try:
        recipe = _decode(raw)
    except ValueError as error:
        raise CorruptEntry(f"a recipe in the shared store can't be read: {error}") from error
    if not all(len(digest) == 32 and 0 < size <= MAX_BYTES for digest, size in recipe):
        raise CorruptEntry("a recipe in the shared store is not what was stored")
    return recipe


def _chunk(digest: bytes) -> str:
    return f"chunks/{digest.hex()}"


def _recipe(record: FileRecord) -> str:
    return f"recipes/{record.blake3.hex()}"
