"""The command ``trivet``."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code. ``arguments`` default to those of the process.

    0: done. 1: what was asked for failed or was found wrong. 2: wrong usage. 3: not found, or it
    would miss. 130: interrupted. 141: the reader of the output went away.
    """
    try:
        from trivet.cli.app import invoke

        return invoke(arguments)
    except KeyboardInterrupt:  # while the command was still being imported
        return 130
