"""What commands open, by the options that several of them share.

No parser is imported here: ``trivet exec`` stands before a program that somebody waits for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trivet.errors import StoreUnavailable

if TYPE_CHECKING:
    from trivet.cache import Cache
    from trivet.cache.shared import Shared
    from trivet.stores.host import HostStore


def cache_folder(folder: Path | None) -> Path:
    """The folder that is meant. Raises `StoreUnavailable` for a user without a home."""
    from trivet.cache.place import user_folder

    return folder if folder is not None else user_folder()


def open_cache(
    folder: Path | None,
    shared: Sequence[str] | None = None,
    *,
    layers: Sequence[Path] | None = None,
) -> Cache:
    """The cache, made when it is missing; in memory, with a warning, when it can't be used.

    Raises `StoreUnavailable` for a url that can't be used, and `MissingExtra`.
    """
    from trivet.cache import Cache

    with _urls():
        return Cache.open(folder, shared=shared or None, layers=layers or ())


def open_existing(
    folder: Path | None,
    shared: Sequence[str] | None = None,
    *,
    layers: Sequence[Path] | None = None,
) -> Cache:
    """The cache that is there; only layers, where there is no folder. Raises `StoreError` when one
    is missing or can't be used, and as `open_cache`."""
    from trivet.cache import Cache

    path = cache_folder(folder)
    if not path.is_dir():
        if layers:
            from trivet.stores.layers import open_layers

            return Cache(layers=open_layers(layers, strict=True)[0], strict=True)
        raise StoreUnavailable(
            f"there is no cache folder {path}",
            hint="'trivet run MODEL' makes it; --cache-dir or TRIVET_CACHE_DIR name another one",
        )
    with _urls():
        return Cache.open(path, shared=shared or None, layers=layers or (), strict=True)


def open_shared(urls: Sequence[str]) -> Shared:
    """What all hosts share, by itself. Raises as `open_cache`."""
    from trivet.cache.shared import Shared

    with _urls():
        return Shared.open(urls)


@contextlib.contextmanager
def _urls() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise StoreUnavailable(
            f"--shared: {error}", hint="such as s3://bucket/prefix or valkey://host:6379/0"
        ) from error


def host_store(cache: Cache) -> HostStore:
    """The store of a cache that was opened with a folder."""
    from trivet.stores.host import HostStore

    assert isinstance(cache.store, HostStore)
    return cache.store
