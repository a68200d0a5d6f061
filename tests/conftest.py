"""What all tests share: a machine without some tool runs the others and says what it left out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest
from hypothesis import settings

settings.register_profile("trivet", derandomize=True, deadline=None)
settings.load_profile("trivet")

_AVAILABLE: dict[str, Callable[[], bool]] = {
    "qemu-user": lambda: shutil.which("qemu-x86_64") is not None,
    "redis-server": lambda: shutil.which("redis-server") is not None,
    "root": lambda: os.geteuid() == 0,
}
_left_out = pytest.StashKey[dict[str, int]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests whose needs this machine lacks; in CI they run, and fail."""
    if os.environ.get("CI"):
        return
    missing = {need for need, is_here in _AVAILABLE.items() if not is_here()}
    kept, dropped, counts = [], [], dict.fromkeys(missing, 0)
    for item in items:
        lacking = missing.intersection(
            need for mark in item.iter_markers("needs") for need in mark.args
        )
        (dropped if lacking else kept).append(item)
        for need in lacking:
            counts[need] += 1
    if dropped:
        items[:] = kept
        config.hook.pytest_deselected(items=dropped)
    config.stash[_left_out] = counts


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was left out."""
    for need, count in config.stash.get(_left_out, {}).items():
        if count:
            terminalreporter.write_line(f"left out for want of {need}: {count} tests", yellow=True)
