"""Everything that a framework's cache folder depends on, as the fields of a key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.errors import BackendError, MissingExtra
from trivet.keys import FieldValue, Key
from trivet.plans.environment import significant
from trivet.plans.folders.framework import CacheFolder
from trivet.plans.folders.interpreter import Interpreter
from trivet.plans.folders.machine import compilers, graphics
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
) -> Key:
    """The key of one framework's folder.

    Args:
        framework: whose folder.
        interpreter: in which the program runs.
        host: the machine, with the environment that the program gets.
        inputs: name to content digest of files that the caller declares.
        salts: whatever else the caller wants to keep apart.
        memo: remembers digests of unchanged files.

    Raises `BackendError` when nothing of a package can be identified, or the CPU's features can't
    be told: whether a folder fits this machine is then anybody's guess.
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
            "graphics": graphics(),
            "compilers": compilers(framework.compilers, host.environment, memo),
            "environment": significant(host.environment, framework.environment),
            "settings": dict(framework.settings),
            "inputs": dict(inputs),
            "salts": dict(salts),
        },
    )


def digest_inputs(paths: list[Path], memo: Memo | None = None) -> dict[str, str]:
    """Content digests of declared files; of folders, of all files below them.

    Named by their place in the list and below it, so that the same files elsewhere are the same.
    Raises `OSError` for one that can't be read.
    """
    found = {}
    for number, path in enumerate(paths):
        below = sorted(each for each in path.rglob("*") if each.is_file())
        for each in below if path.is_dir() else [path]:
            name = each.relative_to(path) if path.is_dir() else path.name
            found[f"{number}/{name}"] = file_digest(each, memo)
    return found
