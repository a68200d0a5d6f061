"""What is to be got ready: models from the command line, or from a plan file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import typer

from trivet.cli.options import BackendName, make_backend

if TYPE_CHECKING:
    from trivet.plans.backend import Backend
    from trivet.plans.shapes import Shapes


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One model, how it is to be compiled, and whether it may fail."""

    path: Path
    backend: Backend
    shapes: Shapes
    release: str = ""
    required: bool = True


class _Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[model]]`` of a plan file. ``path`` is relative to the file."""

    path: str
    backend: BackendName | None = None
    shapes: str | list[str] = []
    pad: dict[str, int | float | bool | str] = {}
    mask: str | None = None
    cut: dict[str, dict[str, str]] = {}
    outside: Literal["refuse", "fallback"] = "refuse"
    check_padding: bool = True
    threads: int | None = None
    options: dict[str, str | int | float | bool | list[str]] = {}
    required: bool = True


class _PlanFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: list[_Model]
    release: str = ""


def from_options(
    path: Path,
    backend: BackendName | None,
    shapes: Sequence[str] | None,
    threads: int | None,
    options: Mapping[str, str],
    release: str = "",
) -> Wanted:
    """A model named on the command line."""
    from trivet.plans.shapes import Shapes

    return Wanted(
        path=path,
        backend=make_backend(path, backend, threads, options),
        shapes=Shapes(*(shapes or ())),
        release=release,
    )


def read_plan_file(path: Path) -> list[Wanted]:
    """The models that a plan file lists. A file that says something else is wrong usage."""
    import tomllib

    try:
        content = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _PlanFile)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise typer.BadParameter(f"{path} can't be read: {error}") from error
    except msgspec.ValidationError as error:
        raise typer.BadParameter(f"{path} is not a plan file: {error}") from error
    return [_wanted(each, path.parent, content.release) for each in content.model]


def _wanted(model: _Model, folder: Path, release: str) -> Wanted:
    from trivet.plans.shapes import Shapes

    path = folder / model.path
    return Wanted(
        path=path,
        backend=make_backend(path, model.backend, model.threads, model.options),
        shapes=Shapes(
            *([model.shapes] if isinstance(model.shapes, str) else model.shapes),
            pad=model.pad,
            mask=model.mask,
            cut={name: _axes(name, axes) for name, axes in model.cut.items()},
            outside=model.outside,
            check_padding=model.check_padding,
        ),
        release=release,
        required=model.required,
    )


def _axes(output: str, axes: Mapping[str, Any]) -> dict[int, str]:
    try:
        return {int(axis): symbol for axis, symbol in axes.items()}
    except ValueError as error:
        raise typer.BadParameter(f"cut.{output} names an axis that is not a number") from error
