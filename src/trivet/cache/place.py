"""Where the cache lies when nobody says."""

from __future__ import annotations

from pathlib import Path

from trivet.errors import StoreUnavailable


def user_folder() -> Path:
    """The cache folder of this user, where none is named.

    Raises `StoreUnavailable` for a user without a home, such as the made-up ones of containers.
    """
    import platformdirs  # only who names no folder pays for it

    try:
        return platformdirs.user_cache_path("trivet")
    except (RuntimeError, KeyError) as error:
        raise StoreUnavailable(
            f"this user has no home for a cache folder: {error}",
            hint="set HOME or XDG_CACHE_HOME, or name a folder, as by TRIVET_CACHE_DIR",
        ) from error
