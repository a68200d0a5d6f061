"""The environment variables that a framework reads, and which of them a plan depends on.

Deny by default: every variable with a prefix that the framework uses enters the key, whether
somebody has heard of it or not. A name is left out only by a line in the rules that says why.

The prefixes and names of a framework come from two sources, taken again for each release that is
added: the calls to ``getenv`` seen while a model was compiled, and the names found in the libraries
themselves. NumPy reads OPENBLAS_*, NPY_* and GOTO_* in the same process; no plan is made by NumPy,
so these are in no rules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from trivet.keys import FieldValue

# Read by the loader and the C library before any framework is; empty means unset (ld.so(8)). They
# can replace the very libraries whose contents the key names, and GLIBC_TUNABLES picks among
# variants of libm.
LOADER = ("GLIBC_TUNABLES", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_PRELOAD")


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What one framework reads.

    Attributes:
        prefixes: every variable whose name begins so is read by the framework.
        names: variables it reads whose names have none of these prefixes.
        neutral: variable to the reason why no plan depends on it; a name that ends in ``*`` stands
            for all that begin so.
        empty_is_unset: variables for which the reader documents that empty means unset. For all
            others an empty value is a value: some readers test only whether the name is defined.
    """

    prefixes: tuple[str, ...]
    names: tuple[str, ...]
    neutral: Mapping[str, str] = {}
    empty_is_unset: frozenset[str] = frozenset(LOADER)


def significant(environment: Mapping[str, str], rules: Rules) -> dict[str, FieldValue]:
    """The part of ``environment`` that enters the key of a plan, sorted by name.

    A value that is not Unicode is given as its bytes.
    """
    return {
        name.encode(errors="backslashreplace").decode(): _text_or_bytes(value)
        for name, value in sorted(environment.items())
        if is_read(name, rules)
        and neutral_reason(name, rules) is None
        and (value or name not in rules.empty_is_unset)
    }


def _text_or_bytes(value: str) -> str | bytes:
    try:
        value.encode()
    except UnicodeEncodeError:
        return os.fsencode(value)
    return value


def is_read(name: str, rules: Rules) -> bool:
    """Whether the framework reads a variable of this name, as far as the rules know."""
    return name.startswith(rules.prefixes) or name in rules.names


def neutral_reason(name: str, rules: Rules) -> str | None:
    """Why no plan depends on this variable; None when one may."""
    reason = rules.neutral.get(name)
    if reason is None:
        for pattern, why in rules.neutral.items():
            if pattern.endswith("*") and name.startswith(pattern[:-1]):
                return why
    return reason
