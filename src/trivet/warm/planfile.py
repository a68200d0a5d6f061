"""The plan file: which models a release needs, by which backend, for which shapes."""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from trivet.errors import BackendError, ShapeError, TrivetError
from trivet.plans.backends.named import BackendName, default_backend, make_backend
from trivet.plans.shapes import Shapes
from trivet.warm.lines import Place, line_of

if TYPE_CHECKING:
    from trivet.plans.backend import Backend

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class PlanFileError(TrivetError):
    """A plan file can't be read, or says something that no plan file can say."""


class ReferenceFiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers that are known to be right, as ``.npz`` files; paths are relative to the plan file.

    Without ``inputs``, they are answers to the inputs that ``trivet run`` makes up.
    """

    outputs: str
    inputs: str | None = None
    tolerance: Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)] = 1e-3


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[[model]]`` of a plan file. ``path`` is relative to the file."""

    path: str
    name: str = ""
    backend: BackendName | None = None
    shapes: str | list[str] = []
    pad: dict[str, int | float | bool | str] = {}
    mask: str | None = None
    cut: dict[str, dict[str, str]] = {}
    outside: Literal["refuse", "fallback"] = "refuse"
    check_padding: bool = True
    threads: Annotated[int, msgspec.Meta(ge=1)] | None = None
    options: dict[str, str | int | float | bool | list[str]] = {}
    required: bool = True
    reference: ReferenceFiles | None = None
    previous: bool = True
    nondeterministic: bool = False
    timeout: Seconds | None = None


class _PlanFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: list[ModelEntry] = []
    release: str = ""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One model, how it is to be compiled, and whether it may fail.

    ``name`` is unique among those of one plan file. ``entry`` is what the file says, None for a
    model that none lists.
    """

    path: Path
    backend: Backend
    shapes: Shapes
    release: str = ""
    required: bool = True
    name: str = ""
    entry: ModelEntry | None = None


def read_plan_file(path: Path) -> list[Wanted]:
    """The models that a plan file lists.

    Raises `PlanFileError` for a file that can't be read or lists no model, for names that it does
    not know, and for options and shape rules that can't be.
    """
    try:
        text = path.read_text("utf-8")
        raw = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PlanFileError(f"{path} can't be read: {error}") from error
    _require_known(path, text, raw)
    try:
        content = msgspec.convert(raw, _PlanFile)
    except msgspec.ValidationError as error:
        raise _refused(path, text, raw, error) from error
    if not content.model:
        raise PlanFileError(
            f"{_at(path, text, ('model',))}: there is no model, so nothing would be got ready",
            hint="name one: [[model]], and below it path = 'FILE'",
        )
    names = _names(content.model)
    made = []
    for number, (entry, name) in enumerate(zip(content.model, names, strict=True)):
        place: Place = ("model", number)
        if names.count(name) > 1:
            raise PlanFileError(
                f"{_at(path, text, place)}: several models are called {name}",
                hint="give each a name",
            )
        try:
            made.append(wanted(entry, path.parent, content.release, name))
        except (BackendError, ShapeError) as error:
            message = f"{_at(path, text, place)}: {error.message}"
            raise PlanFileError(message, hint=error.hint) from error
    return made


def wanted(entry: ModelEntry, folder: Path, release: str, name: str) -> Wanted:
    """What an entry of a plan file in ``folder`` stands for.

    Raises `BackendError` and `ShapeError` for options and rules that can't be.
    """
    path = folder / entry.path
    threads = {} if entry.threads is None else {"threads": entry.threads}
    return Wanted(
        path=path,
        backend=make_backend(path, entry.backend, {**threads, **entry.options}),
        shapes=Shapes(
            *([entry.shapes] if isinstance(entry.shapes, str) else entry.shapes),
            pad=entry.pad,
            mask=entry.mask,
            cut={output: _axes(output, axes) for output, axes in entry.cut.items()},
            outside=entry.outside,
            check_padding=entry.check_padding,
        ),
        release=release,
        required=entry.required,
        name=name,
        entry=entry,
    )


def _names(entries: Sequence[ModelEntry]) -> list[str]:
    """The names given; else the path, with the backend where several are made from one file."""
    paths = [each.path for each in entries if not each.name]
    return [each.name or _default_name(each, paths.count(each.path) > 1) for each in entries]


def _default_name(entry: ModelEntry, ambiguous: bool) -> str:
    backend = entry.backend or default_backend(Path(entry.path))
    return f"{entry.path} on {backend}" if ambiguous else entry.path


def _axes(output: str, axes: Mapping[str, Any]) -> dict[int, str]:
    try:
        return {int(axis): symbol for axis, symbol in axes.items()}
    except ValueError:
        raise ShapeError(f"cut.{output} names an axis that is not a number") from None


# -- what is wrong, and where ----------------------------------------------------------------------


def _require_known(path: Path, text: str, raw: Mapping[str, Any]) -> None:
    """Raise for the first name that no plan file has; a misspelt one must not be ignored."""
    tables: list[tuple[Place, Any, type[msgspec.Struct]]] = [((), raw, _PlanFile)]
    models = raw.get("model")
    for number, each in enumerate(models if isinstance(models, list) else ()):
        tables.append((("model", number), each, ModelEntry))
        if isinstance(each, dict):
            inner = ("model", number, "reference")
            tables.append((inner, each.get("reference"), ReferenceFiles))
    for place, table, kind in tables:
        for name in table if isinstance(table, dict) else ():
            if name not in kind.__struct_fields__:
                raise PlanFileError(
                    f"{_at(path, text, (*place, name))}: there is no {name!r} here",
                    hint=_meant(name, kind.__struct_fields__),
                )


def _meant(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, list(map(str, known)), n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"


def _refused(
    path: Path, text: str, raw: Mapping[str, Any], error: msgspec.ValidationError
) -> PlanFileError:
    """The validator's own words, with the line, and what may have been meant."""
    message, _, where = str(error).partition(" - at `$")
    place: list[str | int] = [
        int(index) if index else name for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", where)
    ]
    hint = None
    if place[-1:] == ["backend"]:
        value: Any = raw
        for each in place:
            value = value[each]
        hint = _meant(str(value), list(BackendName))
    elif place == ["model"] and isinstance(raw["model"], dict):
        hint = "a model has two brackets: [[model]]"
    return PlanFileError(f"{_at(path, text, tuple(place))}: {message}", hint=hint)


def _at(path: Path, text: str, place: Place) -> str:
    """File, line, and the way to ``place``, such as ``plan.toml, line 3, model[0].path``."""
    way = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in place)
    line = line_of(text, place)
    parts = [str(path), f"line {line}" if line else "", way.removeprefix(".")]
    return ", ".join(filter(None, parts))
