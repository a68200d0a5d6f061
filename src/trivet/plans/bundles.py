"""Bundles: the plans of a release in one file, signed, to be installed elsewhere.

::

    from trivet.plans import bundles

    bundles.create(cache, "2026.11.trivet", release="2026.11", sign="release.key")
    bundles.install("2026.11.trivet", "/opt/plans", trust=["release.key.pub"])
    cache = Cache.open(layers=["/opt/plans"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from trivet.cache import Cache, StoredEntry
from trivet.entries import Descriptor
from trivet.errors import StoreError
from trivet.keys import Key
from trivet.plans.folders.fingerprint import SPACE as FOLDER_SPACE
from trivet.plans.folders.learned import SPACE as LEARNED_SPACE
from trivet.plans.key import SPACE as PLAN_SPACE
from trivet.plans.key import part
from trivet.stores.bundles import (
    Bundle,
    Difference,
    SigningKey,
    Source,
    Untrusted,
    Written,
    compare,
    fingerprint,
    read_writers,
    require_trusted,
    write_bundle,
)
from trivet.stores.layers import Installed
from trivet.stores.layers import install as unpack
from trivet.stores.layers.check import LayerVerdict, installed_bundles

__all__ = [
    "Held",
    "NothingToBundle",
    "Untrusted",
    "Verified",
    "choose",
    "create",
    "diff",
    "install",
    "verify",
    "verify_layer",
]

Progress = Callable[[int, int], object]
"""Called with bytes done and bytes in all."""


class NothingToBundle(StoreError):
    """No stored plan is what was asked for."""


class Held(msgspec.Struct, frozen=True):
    """One entry of a bundle; ``size`` is in bytes, files included."""

    key: Key
    descriptor: Descriptor
    size: int


class Verified(msgspec.Struct, frozen=True):
    """A bundle that is sound.

    Attributes:
        id: in hexadecimal. entries: what it holds. size: bytes of the file; unpacked: of what it
            holds.
        signed_by: fingerprint of the writer's key; empty where it is not signed. The signature is
            right.
        writer: the writer's name in the list of trusted writers; None for one who is not in it.
    """

    id: str
    entries: list[Held]
    size: int
    unpacked: int
    signed_by: str
    writer: str | None


def choose(
    cache: Cache, *, release: str = "", backend: str = "", folders: bool | None = None
) -> list[StoredEntry]:
    """The entries that a bundle would hold: plans, and folders kept by ``trivet exec``.

    Args:
        release: only plans that were made for this release.
        backend: only plans of this backend.
        folders: whether to take the folders; None: if nothing else is asked for.
    """
    if folders is None:
        folders = not release and not backend
    found = []
    for entry in cache.entries():
        if entry.invalid is not None or entry.descriptor.failure is not None:
            continue
        key = entry.key
        is_plan = (
            key.space == PLAN_SPACE
            and (not release or f"release={release}" in entry.descriptor.tags)
            and (not backend or part(key, "backend", "name") == backend)
        )
        # Without what was learned, another host doesn't know what a folder's key is made of.
        if is_plan or (folders and key.space in (FOLDER_SPACE, LEARNED_SPACE)):
            found.append(entry)
    return found


def create(
    cache: Cache,
    target: str | Path,
    entries: Iterable[StoredEntry] | None = None,
    *,
    release: str = "",
    sign: str | Path | None = None,
    progress: Progress | None = None,
) -> Written:
    """Write a bundle of ``entries`` to the file ``target``, replacing it.

    Each is verified while it is read. The same entries make the same bytes, on any host.

    Args:
        entries: what `choose` returned; by default all, or all plans of ``release``.
        sign: a private key, of ``trivet bundle keygen`` or ``ssh-keygen -t ed25519``.

    Raises:
        NothingToBundle: there are no entries.
        CorruptEntry: one is damaged; ``target`` is as it was.
        StoreError: one is gone, or ``target`` can't be written.
        BadKey: ``sign`` is no such key.
        MissingExtra: the extra ``bundle`` is not installed.
    """
    wanted = list(choose(cache, release=release) if entries is None else entries)
    if not wanted:
        raise NothingToBundle(
            "no stored plan is what was asked for", hint="'trivet ls' shows what is stored"
        )
    signer = SigningKey.read(Path(sign)) if sign is not None else None
    step = _summed(progress, sum(each.descriptor.size for each in wanted))
    sources = [_source(cache, each.key) for each in wanted]
    return write_bundle(Path(target), sources, signer=signer, progress=step)


def install(
    file: str | Path,
    folder: str | Path,
    *,
    trust: Sequence[str | Path] = (),
    allow_unsigned: bool = False,
    replace: bool = False,
    private_volume: bool = False,
    progress: Progress | None = None,
) -> Installed:
    """Install a bundle in the layer ``folder``, for ``Cache.open(..., layers=[folder])``.

    Everything is verified before any of it can be seen. What was installed there before stays
    behind it, so that a roll-back finds its plans; with ``replace`` it is removed.

    Args:
        trust: lists of the writers who are trusted: ``.pub`` files, or several of their lines.
        allow_unsigned: install it although nobody has signed it.
        private_volume: nobody else reaches the folders above ``folder``, although their modes let
            everybody write, as those of a pod's own volumes do.

    Raises:
        Untrusted: nobody in ``trust`` has signed it; or nobody at all, and it unpacks to far more
            than it is large.
        CorruptEntry, IncompatibleEntry: it is damaged, or of a later release.
        StoreError: ``folder`` is something else, can't be written, or has not enough room.
        MissingExtra: it is signed, and the extra ``bundle`` is not installed.
    """
    with Bundle.open(Path(file)) as bundle:
        bundle.check_signature()
        writers = read_writers(map(Path, trust))
        require_trusted(bundle.signature, writers, allow_unsigned=allow_unsigned)
        if bundle.signature is None:
            bundle.require_in_proportion()
        step = _summed(progress, bundle.contents.unpacked)
        return unpack(
            bundle, Path(folder), replace=replace, private_volume=private_volume, progress=step
        )


def verify(
    file: str | Path,
    *,
    trust: Sequence[str | Path] = (),
    required: bool | None = None,
    progress: Progress | None = None,
) -> Verified:
    """Read all of a bundle and verify it, its signature included.

    Args:
        trust: lists of the writers who are trusted.
        required: whether one of them must have signed it; by default, if any are named.

    Raises:
        Untrusted: nobody who had to has signed the bundle; or nobody who is trusted, and it unpacks
            to far more than it is large.
        CorruptEntry, IncompatibleEntry: it is damaged, or of a later release.
        MissingExtra: it is signed, and the extra ``bundle`` is not installed.
    """
    with Bundle.open(Path(file)) as bundle:
        signature, contents = bundle.signature, bundle.contents
        bundle.check_signature()
        writers = read_writers(map(Path, trust))
        if bool(trust) if required is None else required:
            require_trusted(signature, writers)
        if signature is None or signature.writer not in writers:
            bundle.require_in_proportion()
        step = _summed(progress, contents.unpacked)
        held = [
            Held(
                item.key,
                item.descriptor,
                len(item.sealed) + sum(map(contents.size_of, item.record.files)),
            )
            for item in bundle.check(step)
        ]
        return Verified(
            id=bundle.id.hex(),
            entries=held,
            size=bundle.size,
            unpacked=contents.unpacked,
            signed_by=fingerprint(signature.writer) if signature is not None else "",
            writer=writers.get(signature.writer) if signature is not None else None,
        )


def verify_layer(
    folder: str | Path, *, trust: Sequence[str | Path] = (), progress: Progress | None = None
) -> list[LayerVerdict]:
    """Compare every byte of a layer with what the bundles' writers signed.

    Raises:
        Untrusted: ``trust`` is given, and nobody in it has signed one of the bundles.
        CorruptEntry: what says what is in it is damaged.
        StoreError: ``folder`` is no layer, or others could change it.
    """
    found = installed_bundles(Path(folder))
    writers = read_writers(map(Path, trust))
    if trust:
        for each in found:
            require_trusted(each.signature, writers)
    step = _summed(progress, sum(each.contents.unpacked for each in found))
    return [verdict for each in found for verdict in each.check(step)]


def diff(a: str | Path, b: str | Path) -> Difference:
    """What is added, removed and changed from bundle ``a`` to bundle ``b``, and what they share.

    Raises `CorruptEntry`, `IncompatibleEntry` and OSError when one can't be read.
    """
    with Bundle.open(Path(a)) as before, Bundle.open(Path(b)) as after:
        return compare(before, after)


def _source(cache: Cache, key: Key) -> Source:
    def read() -> tuple[bytes | memoryview, Path | None] | None:
        found = cache.stored_files(key)
        if found is not None or cache.store is None:
            return found
        raw = cache.store.read(key.digest)
        return None if raw is None else (raw, None)

    return Source(key.digest, read)


def _summed(progress: Progress | None, total: int) -> Callable[[int], object]:
    done = 0

    def step(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, max(total, done))

    return step
