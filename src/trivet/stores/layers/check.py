"""Whether a layer is still what was installed: every byte, against what the writer signed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from blake3 import blake3

from trivet.entries import FileRecord, Manifest, unseal
from trivet.entries.bundle import Blob, Contents, EntryRecord, digest
from trivet.entries.manifest import ARTIFACT_CODEC
from trivet.errors import CorruptEntry, IncompatibleEntry, StoreUnavailable
from trivet.stores.bundles.signing import Signature
from trivet.stores.layers.layout import Layout, require_safe_layer


class LayerVerdict(msgspec.Struct, frozen=True):
    """The outcome for one entry of one bundle.

    ``size`` is in bytes, 0 where it is not sound; ``problem`` says why it isn't.
    """

    bundle: str
    digest: bytes
    size: int
    problem: str | None


class InstalledBundle:
    """A bundle as it lies in a layer.

    Raises `CorruptEntry` when its contents or its signature are not what was installed.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self._folder = Layout(root).bundles / name
        try:
            raw = (self._folder / "contents").read_bytes()
            signature = (self._folder / "signature").read_bytes()
        except FileNotFoundError as error:
            raise CorruptEntry(f"the bundle {name[:12]} is not complete: {error}") from error
        if digest(raw).hex() != name:
            raise CorruptEntry(f"the contents of the bundle {name[:12]} are not what was installed")
        self.contents = Contents.decode(raw)
        self.signature = Signature.decode(signature) if signature else None
        if self.signature is not None:
            self.signature.check(bytes.fromhex(name))

    def check(self, progress: Callable[[int], object]) -> Iterator[LayerVerdict]:
        """Read everything."""
        for record in self.contents.entries:
            problem, size = None, 0
            try:
                size = self._check(record, progress)
            except (CorruptEntry, IncompatibleEntry) as error:
                problem = error.message
            except OSError as error:
                problem = f"a file can't be read: {error}"
            yield LayerVerdict(self.name, record.digest, size, problem)

    def _check(self, record: EntryRecord, progress: Callable[[int], object]) -> int:
        name = record.digest.hex()
        entry = self._folder / "entries" / name
        size = self._compare(entry, record.sealed, "the entry", progress)
        sealed = unseal(entry.read_bytes(), cryptographic=True)
        files: tuple[FileRecord, ...] = ()
        if sealed.descriptor.codec == ARTIFACT_CODEC:
            files = Manifest.decode(sealed.payload).files
        for each, blob in zip(files, record.files, strict=True):
            path = self._folder / "files" / name / each.name
            size += self._compare(path, blob, each.name, progress)
        return size

    def _compare(self, path: Path, blob: Blob, what: str, progress: Callable[[int], object]) -> int:
        """Compare a file with its chunks; returns its bytes."""
        contents, size = self.contents, 0
        with path.open("rb") as file:
            for number in blob:
                chunk = file.read(contents.lengths[number])
                if blake3(chunk).digest() != contents.digest_of(number):
                    raise CorruptEntry(f"{what} is not what was installed")
                size += len(chunk)
                progress(len(chunk))
            if file.read(1):
                raise CorruptEntry(f"{what} is longer than what was installed")
        return size


def installed_bundles(root: Path) -> list[InstalledBundle]:
    """The bundles of the layer ``root``, the newest first.

    Raises:
        CorruptEntry: one is not what was installed.
        StoreError: there is no layer, or others could change it.
    """
    names = Layout(root).read_list()
    if not names:
        raise StoreUnavailable(
            f"no bundle is installed in {root}",
            hint="'trivet bundle install FILE FOLDER' does that",
        )
    require_safe_layer(root)
    return [InstalledBundle(root, name) for name in names]
