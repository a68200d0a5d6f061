"""Options that several commands share, and what is made from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from trivet.plans.backends.named import BackendName

CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        envvar="TRIVET_CACHE_DIR",
        metavar="FOLDER",
        readable=False,  # what can't be read is a finding of the doctor, not wrong usage
        show_default=False,
        help="The cache folder; by default the user's own.",
    ),
]
Shared = Annotated[
    list[str] | None,
    typer.Option(
        "--shared",
        envvar="TRIVET_SHARED",
        metavar="URL",
        show_default=False,
        help="What all hosts share: the URL of an object store, of a Valkey or Redis, or one of "
        "each (separated by spaces in the variable).",
    ),
]
LayerDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--layer",
        envvar="TRIVET_LAYERS",
        metavar="FOLDER",
        readable=False,
        show_default=False,
        help="A folder of installed bundles below the cache folder; may be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An .onnx, .xml (IR), .jaxexport or .pt2 file.")
]
Backends = Annotated[
    BackendName | None,
    typer.Option(
        "--backend",
        show_default=False,
        help="What compiles and runs the model; by default openvino for .xml, jax for "
        ".jaxexport, torch for .pt2, else onnxruntime.",
    ),
]
ShapeRules = Annotated[
    list[str] | None,
    typer.Option(
        "--shapes",
        metavar="RULE",
        show_default=False,
        help="Shapes of one input, such as 'x=N{1,8,32}x3x224x224'; may be repeated.",
    ),
]
BackendOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        show_default=False,
        help="An option of the backend, such as threads=2; may be repeated.",
    ),
]
ModelText = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="TEXT",
        show_default=False,
        help="Only models with this in their name.",
    ),
]
OneBackend = Annotated[
    BackendName | None,
    typer.Option("--backend", show_default=False, help="Only plans of this backend."),
]
Release = Annotated[
    str,
    typer.Option(
        "--release",
        metavar="NAME",
        show_default=False,
        help="Tag new plans with release=NAME, for 'trivet drop --tag release=NAME'.",
    ),
]


def parse_pairs(pairs: Sequence[str] | None, option: str) -> dict[str, str]:
    """``NAME=VALUE`` texts as a mapping; a wrong one is wrong usage."""
    found = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        found[name] = value
    return found


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_age(text: str, option: str) -> float:
    """``"7d"`` in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is not a number with one of the units {', '.join(_UNITS)}",
            param_hint=option,
        )
    return float(match[1]) * _UNITS[match[2]]
