"""What is to be got ready: models from the command line, or from a plan file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from trivet.plans.backends.named import BackendName, make_backend

if TYPE_CHECKING:
    from trivet.warm.planfile import Wanted


def from_options(
    path: Path,
    backend: BackendName | None,
    shapes: Sequence[str] | None,
    options: Mapping[str, str],
    release: str = "",
) -> Wanted:
    """A model named on the command line."""
    from trivet.plans.shapes import Shapes
    from trivet.warm.planfile import Wanted

    return Wanted(
        path=path,
        backend=make_backend(path, backend, options),
        shapes=Shapes(*(shapes or ())),
        release=release,
        name=str(path),
    )


def read_plan_file(path: Path) -> list[Wanted]:
    """The models that a plan file lists. A file that says something else is wrong usage."""
    from trivet.warm.planfile import PlanFileError
    from trivet.warm.planfile import read_plan_file as read

    try:
        return read(path)
    except PlanFileError as error:
        raise typer.BadParameter(str(error)) from error
