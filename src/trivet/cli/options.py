"""Options that several commands share, and what is made from them."""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trivet.errors import BackendError, StoreUnavailable

if TYPE_CHECKING:
    from trivet.cache import Cache
    from trivet.plans.backend import Backend
    from trivet.stores.host import HostStore


class BackendName(enum.StrEnum):
    """The backends that come with the package."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"
    IREE = "iree"
    JAX = "jax"
    TENSORRT = "tensorrt"
    TORCH = "torch"


_CLASSES = {
    BackendName.ONNXRUNTIME: "OnnxRuntime",
    BackendName.OPENVINO: "OpenVino",
    BackendName.IREE: "Iree",
    BackendName.JAX: "Jax",
    BackendName.TENSORRT: "TensorRt",
    BackendName.TORCH: "Torch",
}
_BY_SUFFIX = {
    ".xml": BackendName.OPENVINO,
    ".jaxexport": BackendName.JAX,
    ".pt2": BackendName.TORCH,
}

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
        "openvino, for .jaxexport jax.",
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
        help="An option of the backend, by its own name; may be repeated.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", min=1, show_default=False, help="Threads of one inference."),
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
    from trivet.cache.cache import user_folder

    return folder if folder is not None else user_folder()


def open_cache(folder: Path | None) -> Cache:
    """The cache, made when it is missing; in memory, with a warning, when it can't be used."""
    from trivet.cache import Cache

    return Cache.open(folder)


def open_existing(folder: Path | None) -> Cache:
    """The cache that is there. Raises `StoreError` when it is missing or can't be used."""
    from trivet.cache import Cache

    path = cache_folder(folder)
    if not path.is_dir():
        raise StoreUnavailable(
            f"there is no cache folder {path}",
            hint="'trivet run MODEL' makes it; --cache-dir or TRIVET_CACHE_DIR name another one",
        )
    return Cache.open(path, strict=True)


def host_store(cache: Cache) -> HostStore:
    """The store of a cache that was opened with a folder."""
    from trivet.stores.host import HostStore

    assert isinstance(cache.store, HostStore)
    return cache.store


def make_backend(
    model: Path, name: BackendName | None, threads: int | None, options: Mapping[str, Any]
) -> Backend:
    """The backend for ``model``.

    An option with the name of one of the backend's own parameters sets that, lists separated by
    commas; all others are handed to the framework as they are.

    Raises `BackendError` when an option can't be what it is said to be, or the backend has none
    of its name.
    """
    from trivet.plans import backends

    if name is None:
        name = _BY_SUFFIX.get(model.suffix, BackendName.ONNXRUNTIME)
    kind = getattr(backends, _CLASSES[name])
    parameters = inspect.signature(kind, eval_str=True).parameters
    own: dict[str, Any] = {}
    if threads is not None:
        if "threads" not in parameters:
            raise BackendError(f"{name} has no number of threads to set")
        own["threads"] = threads
    others: dict[str, Any] = {}
    for option, value in options.items():
        if option in parameters and option != "options":
            own[option] = _converted(option, value, parameters[option].annotation)
        else:
            others[option] = value
    if "options" in parameters:
        own["options"] = others
    elif others:
        known = ", ".join(parameters)
        raise BackendError(f"{name} has no option {min(others)}", hint=f"its options are {known}")
    made: Backend = kind(**own)
    return made


def _converted(name: str, value: Any, kind: Any) -> Any:
    if isinstance(value, str) and typing.get_origin(kind) is Sequence:
        value = value.split(",")
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BackendError(f"the option {name} can't be {value!r}: {error}") from error


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
