"""`Key`: everything that a cached value depends on, as typed, named fields."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec
from blake3 import blake3

from trivet.errors import CorruptEntry, InvalidKey
from trivet.keys.fingerprint import Fingerprint

FieldValue: TypeAlias = (
    "None | bool | int | float | str | bytes | tuple[FieldValue, ...] | Mapping[str, FieldValue]"
)

_FORMAT = 1
_MAX_DEPTH = 16
_LEAST_INT, _MOST_INT = -(1 << 63), (1 << 64) - 1  # what MessagePack holds
_AS_THEY_ARE = frozenset({type(None), bool, float, bytes})
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(list, strict=True).decode


class Absent(enum.Enum):
    """The type of `ABSENT`: the value, in a difference, of a field that one key does not have."""

    ABSENT = "(absent)"

    def __str__(self) -> str:
        return self.value


ABSENT = Absent.ABSENT


class FieldDifference(msgspec.Struct, frozen=True):
    """One field in which two keys differ. A field that a key does not have reads `ABSENT`."""

    name: str
    mine: Any
    theirs: Any


class _Frozen(dict[str, Any]):
    """A nested mapping of a key: a dict for the encoder and for readers, closed to writers."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError("a key's fields can't be changed; use Key.replace")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))  # a copy is the copier's own


class Key:
    """An immutable, typed cache key.

    Args:
        space: what kind of thing is stored, with its schema version, such as ``"plan/1"``. Keys of
            different spaces never compare equal.
        fields: name to value. Values are None, bool, int (64 bits), float, str, bytes, and lists,
            tuples and string-keyed mappings of these. Types are strict: ``1``, ``True`` and ``1.0``
            differ; subclasses (enums, numpy scalars) are refused rather than guessed at. Lists and
            tuples are the same thing.

    Attributes:
        canonical: deterministic MessagePack of the whole key; what `==` compares.
        digest: BLAKE3 of ``canonical``, 32 bytes; selects, never confirms.

    Raises:
        InvalidKey: a name or a value has no canonical form; the message gives the path to it.
    """

    __slots__ = ("_fields", "canonical", "digest", "space")

    space: str
    canonical: bytes
    digest: bytes
    _fields: _Frozen

    def __init__(self, space: str, fields: Mapping[str, FieldValue]) -> None:
        if type(space) is not str or not space:
            raise InvalidKey(f"a key's space is a non-empty string, got {space!r}")
        _check_text(space, "(space)")
        frozen = _freeze(fields, "", 0)
        if type(frozen) is not _Frozen:
            raise InvalidKey(f"a key's fields are a mapping, got {type(fields).__name__}")
        set_ = object.__setattr__
        set_(self, "space", space)
        set_(self, "_fields", frozen)
        canonical = _encode([_FORMAT, space, frozen])
        set_(self, "canonical", canonical)
        set_(self, "digest", blake3(canonical).digest())

    @classmethod
    def from_canonical(cls, canonical: bytes | memoryview) -> Key:
        """The key whose canonical bytes these are.

        Raises `CorruptEntry` when the bytes are not exactly what some `Key` would produce.
        """
        try:
            format_, space, fields = _decode(canonical)
            key = cls(space, fields)
        except (ValueError, TypeError, RecursionError) as error:
            raise CorruptEntry(f"these bytes are not a key: {error}") from error
        if format_ != _FORMAT or key.canonical != canonical:
            raise CorruptEntry("these bytes are not a key in canonical form")
        return key

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Key is immutable; can't set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Key is immutable; can't delete {name!r}")

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field, or ``default``."""
        return self._fields.get(name, default)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Key) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Key {self.space} {self.digest.hex()[:12]} {', '.join(self._fields)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Key.from_canonical, (self.canonical,))

    def replace(self, **changes: FieldValue) -> Key:
        """This key with some fields set to other values."""
        return Key(self.space, {**self._fields, **changes})

    def diff(self, other: Key) -> tuple[FieldDifference, ...]:
        """The fields in which the two keys differ, nested mappings by dotted path, sorted.

        The space is compared as the pseudo-field ``(space)``.
        """
        found = [] if self.space == other.space else [("(space)", self.space, other.space)]
        _diff(self._fields, other._fields, "", found)
        return tuple(FieldDifference(*each) for each in sorted(found, key=lambda each: each[0]))


def read_fields(canonical: bytes | memoryview) -> tuple[str, Mapping[str, Any]]:
    """Space and fields of a key, from its canonical bytes, to look around: a tenth of the time of
    `Key.from_canonical`, which also proves that they are a key's.

    Raises `CorruptEntry`.
    """
    try:
        _, space, fields = _decode(canonical)
    except (ValueError, TypeError, RecursionError) as error:
        raise CorruptEntry(f"these bytes are not a key: {error}") from error
    if not isinstance(space, str) or not isinstance(fields, dict):
        raise CorruptEntry("these bytes are not a key")
    return space, fields


def _freeze(value: Any, path: str, depth: int) -> Any:
    """A deep copy of ``value`` in the types that the canonical form knows."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is int:
        if not _LEAST_INT <= value <= _MOST_INT:
            raise InvalidKey(f"key field {path!r} holds an integer of more than 64 bits")
        return value
    if kind is str:
        _check_text(value, path)
        return value
    if kind is Fingerprint:
        return bytes(value)
    if depth >= _MAX_DEPTH:
        raise InvalidKey(f"key field {path!r} is nested more than {_MAX_DEPTH} deep")
    if kind in (list, tuple):
        return tuple(_freeze(each, f"{path}[{i}]", depth + 1) for i, each in enumerate(value))
    if isinstance(value, Mapping):
        frozen: dict[str, Any] = {}
        for name, each in value.items():
            if type(name) is not str:
                raise InvalidKey(f"names in key field {path!r} are strings, got {name!r}")
            _check_text(name, path)
            if type(each) in _AS_THEY_ARE or (type(each) is str and each.isascii()):
                frozen[name] = each  # most fields; the rest of the time goes into their paths
            else:
                frozen[name] = _freeze(each, f"{path}.{name}" if path else name, depth + 1)
        return _Frozen(frozen)
    raise InvalidKey(
        f"key field {path!r} has a value of type {kind.__qualname__}, which has no canonical form",
        hint="use None, bool, int, float, str, bytes, or lists and string-keyed dicts of them",
    )


def _check_text(text: str, path: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidKey(
                f"key field {path!r} holds text that is not Unicode: {error}"
            ) from error


def _diff(mine: Any, theirs: Any, path: str, found: list[tuple[str, Any, Any]]) -> None:
    if type(mine) is _Frozen and type(theirs) is _Frozen:
        for name in mine.keys() | theirs.keys():
            _diff(
                mine.get(name, ABSENT),
                theirs.get(name, ABSENT),
                f"{path}.{name}" if path else name,
                found,
            )
    elif mine is ABSENT or theirs is ABSENT or _encode(mine) != _encode(theirs):
        found.append((path, mine, theirs))
