"""What is known of a framework that keeps a compile cache of its own in a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from trivet.plans.environment import Rules
from trivet.plans.folders.complete import any_file
from trivet.plans.installed import Package

Relocate = Callable[[Path, str, str], None]


def _stays(folder: Path, old: str, new: str) -> None:
    """Nothing in the folder says where it lies."""


class CacheFolder(msgspec.Struct, frozen=True, kw_only=True):
    """One framework's own cache.

    Attributes:
        name: for people and for the key.
        packages: whose builds decide what is in the folder. The first, if any, must be installed
            for the framework to count as present; the others count where they are.
        modules: whose import leads to the framework's use. None for a folder that is always there.
        devices: vendors of graphics processors of which one must be there, if any is named.
        variables: environment variable to the folder, below the private one, that it names.
        settings: variables that are set unless the caller has set them, since the framework
            would else keep less, or keep it in a form that depends on the folder's path.
        read_by: the module that reads these variables when it is imported, so that a process which
            sets them itself has to do so before.
        environment: which other variables a compiled thing depends on.
        neutral_arguments: where the framework's own key leaves out what a program's arguments say,
            they are in ours, but for these options; see `argument_fields`. None where the
            framework's key holds all that arguments can change.
        compilers: commands that compile for the framework, in the key by content; for each the
            variable that names another one, and its usual names.
        transient: globs of file names that are not kept: locks, and what is being written.
        is_complete: whether a file, in its place in the folder, is complete and worth keeping;
            others are left out.
        relocate: rewrites paths inside the files, from an old place of the folder to a new one.
    """

    name: str
    packages: tuple[Package, ...]
    modules: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    variables: Mapping[str, str]
    settings: Mapping[str, str] = {}
    read_by: str = ""
    environment: Rules
    neutral_arguments: Mapping[str, int] | None = None
    compilers: Mapping[str, tuple[str, ...]] = {}
    transient: tuple[str, ...] = ()
    is_complete: Callable[[Path], bool] = any_file
    relocate: Relocate = _stays
