"""Installing a bundle: unpacked aside, verified, then made visible by one rename."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from trivet.errors import CorruptEntry, IncompatibleEntry, StoreFull, StoreUnavailable
from trivet.stores.bundles.reader import Bundle, Item
from trivet.stores.files import check_file
from trivet.stores.host.disk import locked, storage, sync_folder, write_all
from trivet.stores.layers.layout import Layout, encode_list, require_safe_layer

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class Installed(msgspec.Struct, frozen=True):
    """What was done.

    Attributes:
        id: of the bundle, in hexadecimal. entries: how many it has. size: bytes unpacked.
        was_there: it was installed already, and sound.
        bundles: all that are installed now, the newest first.
    """

    id: str
    entries: int
    size: int
    was_there: bool
    bundles: tuple[str, ...]


def install(
    bundle: Bundle,
    root: Path,
    *,
    replace: bool = False,
    private_volume: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Installed:
    """Install ``bundle`` in the layer ``root``, made when it is missing.

    Whether its writer is trusted is for the caller to ask first: see `require_trusted`. Everything
    is verified before any of it is visible. Bundles that are there stay, behind this one; with
    ``replace`` they go. ``private_volume`` says that nobody else reaches the folders above.

    Raises:
        CorruptEntry, IncompatibleEntry: the bundle is damaged, or of a later release.
        StoreError: the folder is no layer, can't be written, or has not enough room.
    """
    layout, name = Layout(root), bundle.id.hex()
    step = progress or (lambda _: None)
    with storage(f"install in {root}"):
        _prepare(layout, private_volume)
        with locked(layout.lock):
            _clear(layout.staging)
            known = layout.read_list()
            final = layout.bundles / name
            was_there = name in known and _is_sound(final, bundle)
            if was_there:
                _renew(layout, bundle, final)
            else:
                _unpack(layout, bundle, final, step)
            others = () if replace else tuple(each for each in known if each != name)
            bundles = (name, *others)
            if bundles != known:
                _write_list(layout, bundles)
            _forget_others(layout, bundles)
    contents = bundle.contents
    return Installed(name, len(contents.entries), contents.unpacked, was_there, bundles)


def _prepare(layout: Layout, private_volume: bool) -> None:
    root = layout.root
    if root.exists() and not layout.list.exists():
        foreign = set(os.listdir(root)) - {"bundles", "staging", "lock", "lost+found"}
        if foreign:
            raise StoreUnavailable(
                f"{root} holds other things than a layer, such as {min(foreign)}",
                hint="name a folder that is empty or does not exist",
            )
    root.mkdir(mode=0o755, parents=True, exist_ok=True)
    require_safe_layer(root, private_volume=private_volume)
    for folder in (layout.bundles, layout.staging):
        folder.mkdir(mode=0o755, exist_ok=True)


def _unpack(layout: Layout, bundle: Bundle, final: Path, step: Callable[[int], object]) -> None:
    facts = os.statvfs(layout.root)
    needed, free = bundle.contents.unpacked, facts.f_bavail * facts.f_frsize
    if needed > free:
        raise StoreFull(
            f"the bundle needs {needed} bytes in {layout.root}, where {free} are free",
            hint="free some room, or install it elsewhere",
        )
    staging = layout.staging / bundle.id.hex()
    os.mkdir(staging, 0o755)
    try:
        _write_bundle(staging, bundle, step)
        with suppress(FileNotFoundError):  # a damaged one, or one that is not listed
            os.rename(final, layout.staging / "old")
        os.rename(staging, final)
        sync_folder(layout.bundles)
    finally:
        _clear(layout.staging)


def _renew(layout: Layout, bundle: Bundle, final: Path) -> None:
    """What `trivet bundle verify` goes by: it may be damaged, or signed only now."""
    for name, raw in (("contents", bundle.raw_contents), ("signature", bundle.raw_signature)):
        with suppress(FileNotFoundError):
            if (final / name).read_bytes() == raw:
                continue
        _write(layout.staging / name, [raw])
        os.rename(layout.staging / name, final / name)
        sync_folder(final)


def _write_bundle(staging: Path, bundle: Bundle, step: Callable[[int], object]) -> None:
    entries, files = staging / "entries", staging / "files"
    os.mkdir(entries, 0o755)
    os.mkdir(files, 0o755)
    for item in bundle.items():
        step(len(item.sealed))
        name = item.record.digest.hex()
        _write(entries / name, [item.sealed])
        if item.manifest is not None:
            _write_files(files / name, bundle, item, step)
    _write(staging / "contents", [bundle.raw_contents])
    _write(staging / "signature", [bundle.raw_signature])
    for folder in (entries, files, staging):
        sync_folder(folder)


def _write_files(folder: Path, bundle: Bundle, item: Item, step: Callable[[int], object]) -> None:
    os.mkdir(folder, 0o755)
    below = {folder}
    for record, blob in item.files():
        target = folder / record.name
        for parent in reversed(target.relative_to(folder).parents[:-1]):
            if folder / parent not in below:
                os.mkdir(folder / parent, 0o755)
                below.add(folder / parent)
        _write(target, _counted(bundle.file(record, blob), step))
    for each in below:
        sync_folder(each)


def _counted(chunks: Iterable[bytes], step: Callable[[int], object]) -> Iterator[bytes]:
    for chunk in chunks:
        step(len(chunk))
        yield chunk


def _write(target: Path, chunks: Iterable[bytes]) -> None:
    descriptor = os.open(target, _NEW, 0o644)
    try:
        for chunk in chunks:
            write_all(descriptor, chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_list(layout: Layout, bundles: tuple[str, ...]) -> None:
    fresh = layout.staging / "layer.json"
    _write(fresh, [encode_list(bundles)])
    os.rename(fresh, layout.list)
    sync_folder(layout.root)


def _forget_others(layout: Layout, bundles: tuple[str, ...]) -> None:
    """Remove what is not listed: replaced, or left by who died before it was."""
    for name in set(os.listdir(layout.bundles)) - set(bundles):
        os.rename(layout.bundles / name, layout.staging / name)
    _clear(layout.staging)


def _clear(staging: Path) -> None:
    for each in staging.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            os.unlink(each)


def _is_sound(folder: Path, bundle: Bundle) -> bool:
    """Whether everything of ``bundle`` lies in ``folder`` as it should."""
    try:
        for item in bundle.items():
            name = item.record.digest.hex()
            if (folder / "entries" / name).read_bytes() != item.sealed:
                return False
            for record, _ in item.files():
                check_file(folder / "files" / name / record.name, record)
    except (OSError, CorruptEntry, IncompatibleEntry):
        return False
    return True
