"""The text form of a shape rule.

::

    rule    = NAME "=" ( axis { "x" axis } | "()" )
    axis    = SIZE                     the size is exactly this
            | "?"                      as the model has it
            | SYMBOL                   any size; equal wherever the symbol stands
            | SYMBOL "[" LOW ".." HIGH "]"      any size within bounds, both included
            | SYMBOL "{" SIZE { "," SIZE } "}"  padded to the smallest of these that fits
            | "{" SIZE { "," SIZE } "}"         the same, without a name
    SYMBOL  = a letter, then letters, digits and "_", without "x"; or any text in quotes
    NAME    = any text without "=" and quotes; or any text in quotes
"""

from __future__ import annotations

import re
from typing import Never

import msgspec

from trivet.errors import ShapeError


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """One axis of a rule. Without any attribute set it is ``?``."""

    symbol: str | None = None
    size: int | None = None
    bounds: tuple[int, int] | None = None
    buckets: tuple[int, ...] = ()

    @property
    def constrained(self) -> bool:
        """Whether the rule says anything about the size."""
        return self != Axis()


_QUOTED = r"'(?:[^']+)'|\"(?:[^\"]+)\""
_SYMBOL = rf"{_QUOTED}|[A-Za-wyz][A-Za-wyz0-9_]*"
_SIZES = r"\{\s*\d+\s*(?:,\s*\d+\s*)*\}"
_BOUNDS = r"\[\s*\d+\s*\.\.\s*\d+\s*\]"
_NAME = rf"\s*({_QUOTED}|[^='\"]+?)\s*=\s*"
_AXIS = (
    rf"\s*(?:(?P<size>\d+)|(?P<free>\?)|(?P<bare>{_SIZES})"
    rf"|(?P<symbol>{_SYMBOL})\s*(?:(?P<buckets>{_SIZES})|(?P<bounds>{_BOUNDS}))?)\s*"
)
_HINT = (
    "a rule reads like x=N{1,8,32}x3x224x224; 'x' separates axes, so a name that contains one "
    "goes in quotes: ids=Bx'max_len'{16,32}"
)


def parse_rule(text: str) -> tuple[str, tuple[Axis, ...]]:
    """The input's name and one `Axis` for each of its axes. Raises `ShapeError`."""
    match = re.match(_NAME, text)
    if match is None:
        raise ShapeError(f"shape rule {text!r} has no name before '='", hint=_HINT)
    name = _unquote(match[1])
    position = match.end()
    pattern = re.compile(_AXIS)  # here, since most starts have no rules
    if text[position:].strip() == "()":
        return name, ()
    axes: list[Axis] = []
    while True:
        match = pattern.match(text, position)
        if match is None:
            _fail(text, position, "expected the size of an axis")
        axes.append(_axis(match, text))
        position = match.end()
        if position == len(text):
            return name, tuple(axes)
        if text[position] != "x":
            _fail(text, position, "expected 'x' before the next axis")
        position += 1


def format_rule(name: str, axes: tuple[Axis, ...]) -> str:
    """The text that parses to these axes."""
    plain = name.strip() == name and not re.search("[='\"]", name)
    return f"{name if plain else _quote(name)}={'x'.join(map(format_axis, axes)) or '()'}"


def format_axis(axis: Axis) -> str:
    """One axis as it stands in a rule."""
    if axis.size is not None:
        return str(axis.size)
    symbol = axis.symbol or ""
    if symbol and not re.fullmatch(_SYMBOL, symbol):
        symbol = _quote(symbol)
    if axis.buckets:
        return f"{symbol}{{{','.join(map(str, axis.buckets))}}}"
    if axis.bounds:
        return f"{symbol}[{axis.bounds[0]}..{axis.bounds[1]}]"
    return symbol or "?"


def _axis(match: re.Match[str], text: str) -> Axis:
    if match["free"]:
        return Axis()
    if match["size"]:
        return Axis(size=_size(match["size"], text))
    symbol = _unquote(match["symbol"]) if match["symbol"] else None
    if match["bounds"]:
        low, high = (_size(each, text) for each in re.findall(r"\d+", match["bounds"]))
        if low > high:
            raise ShapeError(f"shape rule {text!r}: the bounds {match['bounds']} are empty")
        return Axis(symbol=symbol, bounds=(low, high))
    sizes = match["bare"] or match["buckets"]
    if not sizes:
        return Axis(symbol=symbol)
    buckets = [_size(each, text) for each in re.findall(r"\d+", sizes)]
    if len(set(buckets)) < len(buckets) or 0 in buckets:
        raise ShapeError(f"shape rule {text!r}: the buckets {sizes} must be distinct and above 0")
    return Axis(symbol=symbol, buckets=tuple(sorted(buckets)))


def _size(digits: str, text: str) -> int:
    size = int(digits) if len(digits) < 20 else 2**63
    if size >= 2**63:
        raise ShapeError(f"shape rule {text!r}: {digits} is larger than any array")
    return size


def _unquote(text: str) -> str:
    return text[1:-1] if text[0] in "'\"" else text


def _quote(text: str) -> str:
    return f"'{text}'" if "'" not in text else f'"{text}"'


def _fail(text: str, position: int, what: str) -> Never:
    raise ShapeError(f"shape rule {text!r}: {what} at character {position + 1}", hint=_HINT)
