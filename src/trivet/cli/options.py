"""Options that several commands share, and what is made from them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trivet.errors import StoreUnavailable
from trivet.plans.backends.named import BackendName

if TYPE_CHECKING:
    from trivet.cache import Cache
    from trivet.stores.host import HostStore

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
        help="What all hosts share: the url of an object store, of a Valkey or Redis, or one of "
        "each; in the variable separated by spaces.",
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
        help="What compiles and runs the model; by default onnxruntime, for .xml "
        "openvino, for .jaxexport jax, for .pt2 torch.",
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
        help="An option of the backend, by its own name, such as threads=2; may be repeated.",
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


def cache_folder(folder: Path | None) -> Path:
    """The folder that is meant."""
    from trivet.cache.place import user_folder

    return folder if folder is not None else user_folder()


def open_cache(
    folder: Path | None,
    shared: Sequence[str] | None = None,
    *,
    layers: Sequence[Path] | None = None,
) -> Cache:
    """The cache, made when it is missing; in memory, with a warning, when it can't be used.

    Raises `StoreUnavailable` for a url that can't be used, and `MissingExtra`.
    """
    from trivet.cache import Cache

    with _urls():
        return Cache.open(folder, shared=shared or None, layers=layers or ())


def open_existing(
    folder: Path | None,
    shared: Sequence[str] | None = None,
    *,
    layers: Sequence[Path] | None = None,
) -> Cache:
    """The cache that is there; only layers, where there is no folder. Raises `StoreError` when one
    is missing or can't be used, and as `open_cache`."""
    from trivet.cache import Cache

    path = cache_folder(folder)
    if not path.is_dir():
        if layers:
            from trivet.stores.layers import open_layers

            return Cache(layers=open_layers(layers, strict=True)[0], strict=True)
        raise StoreUnavailable(
            f"there is no cache folder {path}",
            hint="'trivet run MODEL' makes it; --cache-dir or TRIVET_CACHE_DIR name another one",
        )
    with _urls():
        return Cache.open(path, shared=shared or None, layers=layers or (), strict=True)


@contextlib.contextmanager
def _urls() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise StoreUnavailable(
            f"--shared: {error}", hint="such as s3://bucket/prefix or valkey://host:6379/0"
        ) from error


def host_store(cache: Cache) -> HostStore:
    """The store of a cache that was opened with a folder."""
    from trivet.stores.host import HostStore

    assert isinstance(cache.store, HostStore)
    return cache.store


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
