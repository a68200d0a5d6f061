"""Calls that depend on each other: a tree of keys, of which only what is missing is computed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trivet.errors import Unkeyable
from trivet.keys import Fingerprint, Key
from trivet.values.forms import register

if TYPE_CHECKING:
    from trivet.values.memoise import Memo

R = TypeVar("R")


class Node(Generic[R]):
    """A call of a memo that is not made before its value is asked for; see `Memo.node`.

    Its key is known at once: that of the call, in which other nodes stand by their keys. So a hash
    tree (Merkle, 1987) over everything below is built without computing anything.
    """

    def __init__(self, memo: Memo[..., R], args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        self._memo, self._args, self._named = memo, args, named

    @property
    def key(self) -> Key:
        """Of the call, as it is now. Raises `Unkeyable`."""
        try:
            return self._now({}).key
        except RecursionError:
            raise Unkeyable("a node is nested too deep, or holds itself") from None

    def value(self) -> R:
        """The value: the kept one, or computed after those of the nodes below that it needs.

        Nodes below are not even looked up where this one is kept. Raises as the functions do.
        """
        return self._memo.value_of(self.key, self._prepare, lambda: self.key)

    def _prepare(self) -> Callable[[], R]:
        args, named = _with(self._args, Node.value), _with(self._named, Node.value)
        return functools.partial(self._memo.function, *args, **named)

    def _now(self, made: dict[int, _Keyed[Any]]) -> _Keyed[R]:
        """The same calls, each with one key. ``made``: those that were met, by their id."""
        if id(self) not in made:
            args, named = _with((self._args, self._named), lambda node: node._now(made))
            made[id(self)] = _Keyed(self._memo, args, named)
        return made[id(self)]


class _Keyed(Node[R]):
    """Its key is made once, which matters where many hold the same."""

    @functools.cached_property
    def key(self) -> Key:
        """Of the call, as it was when the node was made."""
        return self._memo.key(*self._args, **self._named)


def _with(given: Any, change: Callable[[Node[Any]], Any]) -> Any:
    """``given`` with each node changed, also in lists, tuples and dicts."""
    if isinstance(given, Node):
        return change(given)
    if type(given) in (list, tuple):
        return type(given)(_with(each, change) for each in given)
    if type(given) is dict:
        return {name: _with(each, change) for name, each in given.items()}
    return given


for _kind in (Node, _Keyed):
    register(_kind, lambda node: Fingerprint(node.key.digest))
