"""Where the cache lies when nobody says."""

from __future__ import annotations

from pathlib import Path


def user_folder() -> Path:
    """The cache folder of this user, where none is named."""
    import platformdirs  # only who names no folder pays for it

    return platformdirs.user_cache_path("trivet")
