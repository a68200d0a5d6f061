"""Everything that a framework's cache folder depends on, as the fields of a key."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.errors import BackendError, MissingExtra
from trivet.keys import FieldValue, Key
from trivet.plans.environment import significant
from trivet.plans.facts.machine import alike_counted, compilers, graphics
from trivet.plans.folders.arguments import argument_fields
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.interpreter import Interpreter
from trivet.plans.host import HostFacts
from trivet.plans.installed import file_digest, installed_facts, locate

if TYPE_CHECKING:
    from trivet.plans.memo import Memo

SPACE = "folder/1"


def present(framework: CacheFolder, interpreter: Interpreter) -> bool:
    """Whether a program in ``interpreter`` could use the framework."""
    if framework.devices and not set(framework.devices) & graphics().keys():
        return False
    needed = framework.packages[:1]
    return all(locate(each.module, interpreter.path) is not None for each in needed)


def folder_key(
    framework: CacheFolder,
    interpreter: Interpreter,
    host: HostFacts,
    inputs: Mapping[str, str],
    salts: Mapping[str, str],
    memo: Memo | None = None,
    *,
    arguments: Sequence[str] = (),
    cwd: str = "",
) -> Key:
    """The key of one framework's folder.

    Args:
        framework: whose folder.
        interpreter: in which the program runs.
        host: the machine, with the environment that the program gets.
        inputs: name to content digest of files that the caller declares.
        salts: whatever else the caller wants to keep apart.
        memo: remembers digests of unchanged files.
        arguments: of the program, without its name; ``cwd`` is where it was started.

    Raises `BackendError` when nothing of a package can be identified, or the CPU's features can't
    be told: whether a folder fits this machine is then anybody's guess. Raises `OSError` when a
    file that an argument names can't be read.
    """
    if host.instruction_set_unknown:
        raise BackendError(host.instruction_set_unknown)
    packages: dict[str, FieldValue] = {}
    for package in framework.packages:
        try:
            facts = installed_facts(package, memo, interpreter.path)
        except MissingExtra:
            packages[package.module] = None
            continue
        packages[package.module] = {
            "version": facts.version,
            "libraries": facts.libraries,
            "record": facts.record,
        }
    environment, processors = alike_counted(
        significant(host.environment, framework.environment), graphics()
    )
    said: dict[str, FieldValue] = {}
    if framework.neutral_arguments is not None:
        said = argument_fields(arguments, framework.neutral_arguments, cwd, memo)
    return Key(
        SPACE,
        {
            "framework": framework.name,
            "packages": packages,
            "python": {"version": interpreter.version, "tag": interpreter.tag},
            "host": {
                "system": host.system,
                "machine": host.machine,
                "instruction_set": host.instruction_set,
                "libc": host.libc,
            },
            "graphics": processors,
            "compilers": compilers(framework.compilers, host.environment, memo),
            "environment": environment,
            "settings": dict(framework.settings),
            "inputs": dict(inputs),
            "salts": dict(salts),
            **said,
        },
    )


def digest_inputs(paths: list[Path], memo: Memo | None = None) -> dict[str, str]:
    """Content digests of declared files; of folders, of all files below them.

    Named by their place in the list and below it, so that the same files elsewhere are the same.
    Links are followed; Python's own byte code is left out. Raises `OSError` for one that can't be
    read, and for one that is no file: a pipe has a content only once.
    """
    found = {}
    for number, path in enumerate(paths):
        for each in _below(path, ()) if path.is_dir() else [path]:
            if not stat.S_ISREG(each.stat().st_mode):
                raise OSError(f"{each} is not a regular file")
            name = each.relative_to(path) if path.is_dir() else path.name
            found[f"{number}/{name}"] = file_digest(each, memo)
    return found


def _below(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    """All files below, by way of links as well, but not in a circle."""
    facts = folder.stat()
    me = (facts.st_dev, facts.st_ino)
    if me in above:
        return
    for name in sorted(os.listdir(folder)):
        path = folder / name
        if path.is_dir():
            if name != "__pycache__":
                yield from _below(path, (*above, me))
        elif path.is_file():
            yield path
