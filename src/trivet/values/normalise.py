"""Making texts alike that mean the same to a function, where its author says so."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

Normaliser = Callable[[str], str]


def case(text: str) -> str:
    """Without regard to upper and lower case, by Unicode's rules."""
    return text.casefold()


def space(text: str) -> str:
    """White space trimmed, and each run of it one blank."""
    return " ".join(text.split())


def nfc(text: str) -> str:
    """Composed letters; what looks the same and differs in bytes becomes the same."""
    return unicodedata.normalize("NFC", text)


def nfkc(text: str) -> str:
    """As `nfc`, with compatibility forms (ligatures, full-width letters) as plain ones."""
    return unicodedata.normalize("NFKC", text)
