"""Where names led when they were looked up, and whether they still lead there."""

from __future__ import annotations

import keyword
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from trivet.errors import Unkeyable
from trivet.keys import Fingerprint

MISSING = object()
_OFTEN = 50  # checks after which compiling them pays
_MANY = 200  # places that are not compiled: it takes 20 us for each
_LEAVES = frozenset({str, bytes, int, bool, Fingerprint})
_encode = msgspec.msgpack.Encoder().encode
_Look = Callable[..., Any]


class _Place(NamedTuple):
    """``look(owner, name)`` led to ``found``. ``term`` says so as source, with names to fill in."""

    look: _Look
    owner: Any
    name: str
    found: Any
    term: str


class Watch:
    """Notes what is looked up, and tells whether it would be found again.

    Attributes:
        holds: whether each name leads to the very object that it led to, and everything else is
            the same as it was.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[int, str, int], _Place] = {}
        self._equal: list[tuple[Callable[[], object], object]] = []
        self._checks = 0
        self.holds: Callable[[], bool] = self._look_again

    def attribute(self, owner: Any, name: str) -> Any:
        """``owner.name``, or `MISSING`."""
        found = _attribute(owner, name)
        is_word = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
        if found is MISSING or not is_word:
            term = "look({owner}, {name}) is {found}"
        else:
            term = f"{{owner}}.{name} is {{found}}"
        return self._note(_Place(_attribute, owner, name, found, term))

    def item(self, owner: Mapping[str, Any], name: str) -> Any:
        """``owner[name]``, or `MISSING`."""
        found = _item(owner, name)
        term = "{name} not in {owner}" if found is MISSING else "{owner}[{name}] is {found}"
        return self._note(_Place(_item, owner, name, found, term))

    def cell(self, owner: types.CellType) -> Any:
        """What a captured variable is bound to, or `MISSING`."""
        found = _content(owner, "")
        term = (
            "look({owner}, '') is {found}"
            if found is MISSING
            else "{owner}.cell_contents is {found}"
        )
        return self._note(_Place(_content, owner, "", found, term))

    def equal(self, look: Callable[[], Any]) -> Any:
        """What ``look`` returns: a form, or tuples of what is the same only as the same object."""
        found = look()
        self._equal.append((look, found))
        return found

    def _note(self, place: _Place) -> Any:
        # What has led to two objects is noted twice, and never holds.
        self._places[id(place.owner), place.name, id(place.found)] = place
        return place.found

    def _look_again(self) -> bool:
        self._checks += 1
        if self._checks >= _OFTEN and len(self._places) <= _MANY:
            self.holds = self._compiled()
        for look, owner, name, found, _ in self._places.values():
            if look(owner, name) is not found:
                return False
        return self._is_equal()

    def _is_equal(self) -> bool:
        try:
            return all(is_same(look(), found) for look, found in self._equal)
        except Unkeyable:
            return False  # who looks all of it up anew is told where

    def _compiled(self) -> Callable[[], bool]:
        """`_look_again` as one expression, in a third of the time: it runs at every hit.

        As `collections.namedtuple` does, from a source of names that were made up here; objects
        come in as arguments, other names as literals.
        """
        given: dict[str, object] = {"rest": self._is_equal}
        terms = ["True"]
        for n, each in enumerate(self._places.values()):
            given |= {f"look{n}": each.look, f"owner{n}": each.owner, f"found{n}": each.found}
            term = each.term.replace("look(", f"look{n}(")
            terms.append(term.format(owner=f"owner{n}", found=f"found{n}", name=repr(each.name)))
        source = f"""
def make({", ".join(given)}):
    def holds():
        try:
            if not ({" and ".join(terms)}):
                return False
        except (AttributeError, KeyError, ValueError):  # deleted
            return False
        return {"rest()" if self._equal else "True"}
    return holds
"""
        space: dict[str, Any] = {}
        exec(source, space)
        made: Callable[[], bool] = space["make"](**given)
        return made


def is_same(one: Any, other: Any) -> bool:
    """Whether two forms are the same. Python's ``==`` takes ``1``, ``1.0`` and ``True`` for equal.

    What stands in a form and has none itself is the same only as the same object.
    """
    if one is other:
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is tuple or kind is list:
        return len(one) == len(other) and all(map(is_same, one, other))
    if kind is float:
        return bool(_encode(one) == _encode(other))
    return kind in _LEAVES and bool(one == other)


def _attribute(owner: Any, name: str) -> Any:
    return getattr(owner, name, MISSING)


def _item(owner: Mapping[str, Any], name: str) -> Any:
    return owner.get(name, MISSING)


def _content(owner: types.CellType, _: str) -> Any:
    try:
        return owner.cell_contents
    except ValueError:
        return MISSING
