"""The command ``trivet``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code. ``arguments`` default to those of the process.

    0: done. 1: what was asked for failed or was found wrong. 2: wrong usage. 3: not found, or it
    would miss. 130: interrupted. 141: the reader of the output went away.
    """
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        if words[:1] == ["exec"]:
            from trivet.cli import guarded, quick

            wish = quick.read(words[1:], os.environ)
            if wish is not None:
                guarded.run(wish)
        from trivet.cli.app import invoke

        return invoke(arguments)
    except KeyboardInterrupt:  # while the command was still being imported
        return 130
