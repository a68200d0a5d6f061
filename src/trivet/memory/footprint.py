"""How many bytes of this process a live value holds: counted where that is cheap, else sampled.

A budget that counted encoded bytes would be exceeded many times over: ``{"a": 1}`` is 4 bytes as
MessagePack and 200 as a dict.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from types import MappingProxyType
from typing import Any

from trivet.keys import Key

ENTRY_BYTES = 1400
"""What an entry takes beside its value and the fields of its key: the objects that describe it, and
its places in the tables of tier and policy. A test compares it with what the interpreter says."""

_SAMPLE = 16  # members that are looked at in a container; the others are taken to be alike
_MOST_LOOKS = 256  # objects, in one value
_VIEW_BYTES = 128  # an array or tensor, without what it shows
# Made once: a union is made anew at each look.
_MAPPINGS, _SEQUENCES, _SETS = (dict, MappingProxyType), (list, tuple, deque), (set, frozenset)
_FLAT = frozenset({bytes, str, int, float, bool, complex, bytearray, type(None)})


def entry_size(key: Key, live: object) -> int:
    """Bytes that keeping ``live`` under ``key`` takes, all told."""
    size = ENTRY_BYTES + len(key.canonical)
    for name in key:
        size += _field_size(key[name])
    return size + (sys.getsizeof(live) if type(live) in _FLAT else footprint(live))


def _field_size(value: Any) -> int:
    """As `footprint`, in a quarter of the time: fields of keys are plain data."""
    kind = type(value)
    if kind in _FLAT:
        return sys.getsizeof(value)
    count = len(value)
    size = sys.getsizeof(value)
    if kind is tuple and count > _SAMPLE:
        return size + sum(map(_field_size, value[:: count // _SAMPLE])) * count // _SAMPLE
    return size + sum(map(_field_size, value if kind is tuple else value.values()))


def footprint(value: object) -> int:
    """About how many bytes ``value`` holds, with all that it refers to.

    Exact for numbers, text, bytes, arrays and tensors. Of containers a few members are looked at;
    an object that is met twice counts once.
    """
    if type(value) in _FLAT:
        return sys.getsizeof(value)
    try:
        return round(_Look().size_of(value))
    except (RuntimeError, IndexError):  # somebody is changing it
        return sys.getsizeof(value, 64)


class _Look:
    """One look at one value."""

    def __init__(self) -> None:
        self._left = _MOST_LOOKS
        self._met: set[int] = set()

    def size_of(self, value: Any) -> float:
        if id(value) in self._met:
            return 0
        self._met.add(id(value))
        if type(value) in _FLAT:
            return sys.getsizeof(value)
        self._left -= 1
        own = sys.getsizeof(value, 64)
        if self._left <= 0 or isinstance(value, type):
            return own
        if isinstance(value, _MAPPINGS):
            return own + self._some(len(value), iter(value.items()))
        if isinstance(value, _SEQUENCES):
            step = max(len(value) // _SAMPLE, 1)
            spread = ((value[at],) for at in range(0, len(value), step))
            return own + self._some(len(value), spread)
        if isinstance(value, _SETS):
            return own + self._some(len(value), ((each,) for each in value))
        buffer = _buffer_size(value)
        if buffer is not None:
            return _VIEW_BYTES + buffer
        return own + sum(self.size_of(each) for each in _attributes(value))

    def _some(self, count: int, members: Iterable[tuple[Any, ...]]) -> float:
        """The size of ``count`` members, from that of the first few of ``members``."""
        looked, size = 0, 0.0
        for each in islice(members, _SAMPLE):
            size += sum(map(self.size_of, each))
            looked += 1
            if self._left <= 0:
                break
        return size / looked * count if looked else 0.0


def _buffer_size(value: Any) -> int | None:
    """Bytes of the memory behind an array, a tensor or a view; None for other values.

    All that a view keeps alive counts, not only what it shows.
    """
    if isinstance(value, memoryview):
        return memoryview(value.obj).nbytes if value.obj is not None else value.nbytes
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        base = value
        while isinstance(base.base, numpy.ndarray):
            base = base.base
        below = base.base
        return len(below) if isinstance(below, bytes) else int(base.nbytes)
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            return int(value.untyped_storage().nbytes())
        return int(value.element_size() * value.numel())
    return None


def _attributes(value: object) -> Iterator[object]:
    """What an object holds in its fields."""
    yield from getattr(value, "__dict__", {}).values()
    names: set[str] = set(getattr(type(value), "__struct_fields__", ()))
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        names.update((slots,) if isinstance(slots, str) else slots)
    for name in names:
        if hasattr(value, name):
            yield getattr(value, name)
