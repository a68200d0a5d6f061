"""One part of a source, brought into a cache folder: in a process of its own, or in this one."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import msgspec

from trivet.cache import Cache
from trivet.cache.fill import Filled, Mark, fill_from
from trivet.errors import StoreUnavailable, TrivetError
from trivet.keys import Key
from trivet.plans.backends.child import own_output
from trivet.plans.lifeline import die_with
from trivet.stores.host import HostStore
from trivet.values import AsyncMemo, Memo

_SPACE = "fill/1"
_WEEKS = 1e7  # seconds
_POSITION = 8  # bytes of a position in a file
_OBJECTS = 100_000  # made between two collections
_WHOLE = 1 << 16  # of the first two bytes of a digest

AnyMemo: TypeAlias = Memo[..., Any] | AsyncMemo[..., Any]


class SourceError(TrivetError):
    """What a folder is to be filled from can't be used."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a source.

    Attributes:
        source: a cache folder; or, with ``memo``, a file of JSON lines.
        memo: ``module:name`` of the memoised function whose results these are.
        cache: the folder to fill; that of the memo, where there is one.
        part, parts: which of how many.
    """

    source: str
    memo: str = ""
    cache: str = ""
    part: int = 0
    parts: int = 1


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """How far a part is. ``done`` and ``total`` are entries, or bytes of a file."""

    filled: Filled
    done: int = 0
    total: int = 0
    error: str = ""
    hint: str = ""


Tell = Callable[[Told], object]


def main() -> None:
    """Do the `Job` on standard input, and tell on standard output how far it is."""
    die_with(int(sys.argv[1]))
    # A batch is some 100 000 objects, none in a circle, which the collector would walk 100 times:
    # a sixth of the time.
    gc.set_threshold(_OBJECTS)
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    with os.fdopen(own_output(), "wb") as out:

        def tell(told: Told) -> None:
            out.write(msgspec.json.encode(told) + b"\n")
            out.flush()

        try:
            run(job, tell)
        except (TrivetError, OSError) as error:
            hint = getattr(error, "hint", None) or ""
            text = error.message if isinstance(error, TrivetError) else str(error)
            tell(Told(filled=Filled(), error=text, hint=hint))


def run(job: Job, tell: Tell) -> None:
    """Do it.

    Raises `SourceError`, and as `Cache.fill`.
    """
    if job.memo:
        _fill_lines(job, tell)
    else:
        _fill_folder(job, tell)


# -- a folder --------------------------------------------------------------------------------------


def _fill_folder(job: Job, tell: Tell) -> None:
    if not (Path(job.source) / "format.json").exists():
        raise SourceError(
            f"{job.source} is no cache folder",
            hint="name one, or a file of JSON lines and the function whose results they are",
        )
    with Cache.open(job.source, strict=True) as other, Cache.open(job.cache, strict=True) as cache:
        source = other.store
        assert isinstance(source, HostStore)
        if Path(job.source).samefile(job.cache):
            raise SourceError("this is the folder that is to be filled")
        total = source.stats().entries // job.parts

        def progress(filled: Filled) -> None:
            tell(Told(filled=filled, done=min(filled.rows, total), total=total))

        filled = fill_from(
            cache,
            source,
            first=_bound(job.part, job.parts),
            last=_bound(job.part + 1, job.parts),
            mark=Mark(cache, Key(_SPACE, {"folder": _folder_id(source), **_part_of(job)})),
            progress=progress,
        )
        tell(Told(filled=filled, done=total, total=total))


def _bound(part: int, parts: int) -> bytes | None:
    """Where the digests of a part begin."""
    if part in (0, parts):
        return None
    return (_WHOLE * part // parts).to_bytes(2, "big") + bytes(30)


def _folder_id(store: HostStore) -> str:
    from trivet.stores.host.layout import read_format

    facts = read_format(store.folder.layout)
    return facts.folder if facts is not None else str(store.root)


def _part_of(job: Job) -> dict[str, int]:
    return {"part": job.part, "parts": job.parts}


# -- lines -----------------------------------------------------------------------------------------


def _fill_lines(job: Job, tell: Tell) -> None:
    memo = load_memo(job.memo)
    lines = _Lines(Path(job.source), memo, job)

    def progress(filled: Filled) -> None:
        tell(Told(filled=filled, done=lines.position - lines.first, total=lines.last - lines.first))

    filled = memo.fill(lines, mark=lines.mark, progress=progress)
    lines.mark.remove()
    tell(Told(filled=filled, done=lines.last - lines.first, total=lines.last - lines.first))


def load_memo(name: str) -> AnyMemo:
    """The memoised function ``module:name``, from a module that can be imported from here.

    Raises `SourceError` where there is none, and where it has no cache folder.
    """
    module, _, path = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for each in path.split("."):
            found = getattr(found, each)
    except (ImportError, AttributeError, ValueError) as error:
        raise SourceError(
            f"there is no {name}: {error}", hint="such as app.vectors:embed"
        ) from error
    if not isinstance(found, Memo | AsyncMemo):
        raise SourceError(f"{name} is no function with @memo, but a {type(found).__name__}")
    if found.cache.store is None:
        raise StoreUnavailable(f"the cache of {name} has no folder")
    return found


class _Lines:
    """The rows of one part of a file: lines that begin in it.

    Attributes:
        first, last: where the part begins and ends.
        mark: up to where it was read.
    """

    def __init__(self, path: Path, memo: AnyMemo, job: Job) -> None:
        self._path, self._memo = path, memo
        self._decode = _row_decoder(memo, job.memo)
        facts = path.stat()
        size = facts.st_size
        self.first = size * job.part // job.parts
        self.last = size * (job.part + 1) // job.parts
        with path.open("rb") as file:
            line = file.readline()
        example = self._key(self._row(line, 0), 0) if line else None
        source = [facts.st_dev, facts.st_ino, size, facts.st_mtime_ns]
        version = example["version"] if example is not None else ""
        assert memo.cache.store is not None
        # What was invalidated since then is to be filled in again.
        epochs = memo.cache.store.epochs(memo.tags_with(None))
        fields: dict[str, Any] = {"lines": source, "function": memo.tag, "version": version}
        self.mark = Mark(memo.cache, Key(_SPACE, {**fields, "tags": epochs, **_part_of(job)}))
        if len(self.mark.position) != _POSITION:
            self._read_to(self.first)

    @property
    def position(self) -> int:
        """Up to where it was read."""
        return int.from_bytes(self.mark.position, "little")

    def _read_to(self, position: int) -> None:
        self.mark.position = position.to_bytes(_POSITION, "little")

    def __iter__(self) -> Iterator[tuple[Key, Any, float]]:
        with self._path.open("rb") as file:
            if self.position == self.first and self.first > 0:
                file.seek(self.first - 1)
                file.readline()  # it began in the part before
            else:
                file.seek(self.position)
            at = file.tell()
            while at < self.last and (line := file.readline()):
                begun, at = at, at + len(line)
                if line.strip():
                    row = self._row(line, begun)
                    self._read_to(at)
                    yield self._key(row, begun), row.value, row.cost

    def _row(self, line: bytes, at: int) -> Any:
        try:
            return self._decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._wrong(at, error) from error

    def _key(self, row: Any, at: int) -> Key:
        try:
            return self._memo.key(*row.args, **row.named)
        except TypeError as error:  # the call doesn't fit, or an argument has no form
            raise self._wrong(at, error) from error

    def _wrong(self, at: int, error: Exception) -> SourceError:
        why = error.message if isinstance(error, TrivetError) else error
        return SourceError(
            f"{self._path}, the line at byte {at}: {why}",
            hint='lines are such as {"args": ["hello"], "value": [0.1, 0.2], "cost": 0.05}',
        )


def _row_decoder(memo: AnyMemo, name: str) -> Callable[[bytes], Any]:
    """Reads lines whose values are of the type that the function returns: JSON alone knows no
    tuples, and a list in the place of one would be a wrong answer."""
    try:
        kind = get_type_hints(memo.function)["return"]
        if kind is Any:
            raise KeyError
        row = msgspec.defstruct(
            "Row",
            [
                ("value", kind),
                ("args", list[Any], msgspec.field(default_factory=list)),
                ("named", dict[str, Any], msgspec.field(default_factory=dict)),
                ("cost", Annotated[float, msgspec.Meta(ge=0.0, le=_WEEKS)], 0.0),
            ],
            forbid_unknown_fields=True,
        )
        return msgspec.json.Decoder(row).decode
    except (KeyError, NameError, TypeError) as error:
        raise SourceError(
            f"{name} does not say that it returns a type that JSON can hold",
            hint="annotate what it returns; for arrays and the like call its fill() in Python",
        ) from error
