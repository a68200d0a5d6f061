"""Logging that costs nothing until something is logged: the first call imports ``logging``."""

from __future__ import annotations


def warning(message: str, *arguments: object) -> None:
    """Log to the logger ``trivet``."""
    import logging

    logging.getLogger("trivet").warning(message, *arguments)


def exception(message: str, *arguments: object) -> None:
    """Log the exception being handled to the logger ``trivet``."""
    import logging

    logging.getLogger("trivet").exception(message, *arguments)
