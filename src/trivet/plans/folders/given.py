"""What a process of a run says of itself, and what it is given."""

from __future__ import annotations

from typing import Any

import msgspec

from trivet.plans.environment import is_read, neutral_reason
from trivet.plans.folders.dependencies import Dependencies
from trivet.plans.folders.guard import KeptFolder
from trivet.plans.folders.interpreter import Interpreter


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A process asks for folders.

    Attributes:
        process: what it calls itself, as in the name of its report; empty for the command's own.
        module: that is about to be imported; empty for the folders that are always there.
        python: in which the process runs.
        environment: of the process, as it is now.
        own: files that implement operators in it and that no package installed.
        exact: whether it has, or is about to have, no others now.
        arguments: of the program that runs in it.
    """

    process: str
    module: str
    python: Interpreter
    environment: dict[str, str]
    own: list[str]
    exact: bool = False
    arguments: list[str] = []


def given_to(folder: KeptFolder, dependencies: Dependencies) -> dict[str, Any]:
    """What the process needs to use the folder, and to notice that it does not fit any more."""
    framework, basis = folder.framework, folder.basis
    rules = framework.environment
    return {
        "framework": framework.name,
        "name": folder.path.name,
        "variables": folder.variables(),
        "settings": dict(framework.settings),
        "restored": str(folder.restored),
        "own": dependencies.own_paths(basis),
        "packages": dependencies.packages(framework, basis.python),
        "environment": {
            name: value
            for name, value in basis.environment.items()
            if is_read(name, rules)
            and neutral_reason(name, rules) is None
            and (value or name not in rules.empty_is_unset)
        },
        "rules": {
            "prefixes": list(rules.prefixes),
            "names": list(rules.names),
            "neutral": list(rules.neutral),
            "empty_is_unset": sorted(rules.empty_is_unset),
        },
    }
