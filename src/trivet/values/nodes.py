"""Calls that depend on each other: a tree of keys, of which only what is missing is computed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trivet.errors import Unkeyable
from trivet.keys import Fingerprint, Key
from trivet.values.forms import register
from trivet.values.memoise import Inputs

if TYPE_CHECKING:
    from trivet.values.memoise import BaseMemo, Memo

R = TypeVar("R")


class BaseNode(Generic[R]):
    """A call of a memo that is not made before its value is asked for; see `Memo.node`.

    Its key is known at once: that of the call, in which other nodes stand by their keys. So a hash
    tree (Merkle, 1987) over everything below is built without computing anything. What invalidates
    a node below, or ends its lifetime, does so to this one.
    """

    def __init__(
        self, memo: BaseMemo[..., R], args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> None:
        self._memo, self._args, self._named = memo, args, named

    @property
    def key(self) -> Key:
        """Of the call, as it is now. Raises `Unkeyable`."""
        try:
            return self._now({}).key
        except RecursionError:
            raise Unkeyable("a node is nested too deep, or holds itself") from None

    def tags_below(self) -> tuple[str, ...]:
        """Of all nodes below. Ask for the key first: it tells what holds itself."""
        met: dict[int, BaseNode[Any]] = {}
        left = below((self._args, self._named))
        while left:
            node = left.pop()
            if id(node) not in met:
                met[id(node)] = node
                left += below((node._args, node._named))
        return tuple(sorted({tag for each in met.values() for tag in each._memo.tags_with(None)}))

    def _now(self, made: dict[int, _Keyed[Any]]) -> _Keyed[R]:
        """The same calls, each with one key. ``made``: those that were met, by their id."""
        if id(self) not in made:
            args, named = replaced((self._args, self._named), lambda node: node._now(made))
            made[id(self)] = _Keyed(self._memo, args, named)
        return made[id(self)]


class Node(BaseNode[R]):
    """A call of a memo of a function."""

    _memo: Memo[..., Any]

    def value(self) -> R:
        """The value: the kept one, or computed after those of the nodes below that it needs.

        Nodes below are not even looked up where this one is kept. Raises as the functions do.
        """
        return self.found(Inputs())

    def found(self, inputs: Inputs) -> R:
        """The value; ``inputs`` says afterwards when it ends."""
        key, inputs.tags = self.key, self.tags_below()
        value: R = self._memo.value_of(key, lambda: self._prepare(inputs), lambda: self.key, inputs)
        return value

    def _prepare(self, inputs: Inputs) -> Callable[[], R]:
        def value(node: Node[Any]) -> Any:
            its = Inputs()
            found = node.found(its)
            inputs.ends = min(inputs.ends, its.ends)
            return found

        args, named = replaced((self._args, self._named), value)
        return functools.partial(self._memo.function, *args, **named)


class _Keyed(BaseNode[R]):
    """Its key is made once, which matters where many hold the same."""

    @functools.cached_property
    def key(self) -> Key:
        """Of the call, as it was when the node was made."""
        return self._memo.key(*self._args, **self._named)


def replaced(given: Any, change: Callable[[Any], Any]) -> Any:
    """``given`` with each node changed, also in lists, tuples and dicts."""
    if isinstance(given, BaseNode):
        return change(given)
    if type(given) in (list, tuple):
        return type(given)(replaced(each, change) for each in given)
    if type(given) is dict:
        return {name: replaced(each, change) for name, each in given.items()}
    return given


def below(given: Any) -> list[BaseNode[Any]]:
    """The nodes that `replaced` would change, each once."""
    found: dict[int, BaseNode[Any]] = {}
    replaced(given, lambda node: found.setdefault(id(node), node))
    return list(found.values())


def check_below(name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Raises TypeError where the function ``name`` would have to wait for a coroutine function."""
    try:
        found = below((args, dict(named)))
    except RecursionError:
        return  # the key says so
    if not all(isinstance(each, Node) for each in found):
        raise TypeError(
            f"{name}() is given a node of a coroutine function, which it can't await; make it a "
            "coroutine function, or await the node's value first"
        )


for _kind in (Node, _Keyed):
    register(_kind, lambda node: Fingerprint(node.key.digest))
