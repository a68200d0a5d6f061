"""What the command line knows, and what a page says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from trivet.cli import main
from trivet.cli.app import app

_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINE = re.compile(r"^(?:\$ |RUN |ExecStart=)?(?:\S*/)?(trivet [^#\n]*)", re.MULTILINE)
_FENCED = re.compile(r"^ *```.*?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")


def known_commands() -> dict[str, set[str]]:
    """Each command, such as ``"bundle create"``, with the long options that it takes; ``""`` is
    ``trivet`` itself."""
    main(["--version"])  # registers the commands
    return dict(_walk(typer.main.get_command(app), ""))


def _walk(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    yield (
        name,
        {"--help"}
        | {option for each in command.params for option in each.opts if option.startswith("--")},
    )
    for sub, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, f"{name} {sub}".strip())


def unknown_words(page: str, known: Mapping[str, set[str]]) -> Iterator[str]:
    """Commands and options that a page names and the command line does not have.

    Looked at are code spans and lines of code blocks that begin with ``trivet``, and code spans
    that begin with an option.
    """
    every = set().union(*known.values())
    code = "\n".join(_FENCED.findall(page))
    spans = _SPAN.findall(_FENCED.sub("", page).replace("\\|", "|"))
    for said in spans:
        if said.startswith("--") and _OPTION.match(said)[0] not in every:  # type: ignore[index]
            yield said
    for said in (*_LINE.findall(code), *(each for each in spans if each.startswith("trivet "))):
        yield from _unknown_in(said, known)


def _unknown_in(said: str, known: Mapping[str, set[str]]) -> Iterator[str]:
    own = said.partition(" -- ")[0].partition(" | ")[0]
    words = [each for each in own.split()[1:] if not each.startswith("-")]
    names = [" ".join(words[:count]) for count in (2, 1)]
    command = next((each for each in names if each in known), None)
    if command is None:
        if words and re.fullmatch("[a-z]+", words[0]):
            yield said
        command = ""
    for option in _OPTION.findall(own):
        if option not in known[command]:
            yield f"{option} in {said}"
