"""``trivet bundle``: the plans of a release in one file, signed, installed as a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trivet.cli.app import app
from trivet.cli.app import command as any_command
from trivet.cli.bundle_report import (
    changed,
    changes_of,
    print_difference,
    report,
    report_layer,
)
from trivet.cli.opening import cache_folder, open_existing
from trivet.cli.options import AsJson, CacheDir, LayerDirs, ModelText, OneBackend
from trivet.cli.output import Output, Step, counted, in_bytes
from trivet.cli.rows import read_rows

if TYPE_CHECKING:
    from trivet.cache import Cache, StoredEntry

_WRITERS = "trusted-writers"

group = typer.Typer(
    help="Put the plans of a release in one signed file, and install it elsewhere.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(group, name="bundle")

BundleFile = Annotated[Path, typer.Argument(metavar="FILE", help="The bundle.")]
Trust = Annotated[
    list[Path] | None,
    typer.Option(
        "--trust",
        envvar="TRIVET_TRUST",
        metavar="FILE",
        show_default=False,
        help="Public keys of trusted writers; may be repeated. Besides these, the file "
        f"{_WRITERS} in the cache folder.",
    ),
]


def create(
    file: BundleFile,
    release: Annotated[
        str,
        typer.Option(metavar="NAME", show_default=False, help="Only plans made for this release."),
    ] = "",
    model: ModelText = "",
    backend: OneBackend = None,
    folders: Annotated[
        bool,
        typer.Option("--folders", help="With a selection of plans: also what 'trivet exec' kept."),
    ] = False,
    sign: Annotated[
        Path | None,
        typer.Option(
            envvar="TRIVET_SIGNING_KEY",
            metavar="KEY",
            show_default=False,
            help="Sign it with this private key, ed25519.",
        ),
    ] = None,
    cache_dir: CacheDir = None,
    layer: LayerDirs = None,
    json: AsJson = False,
) -> None:
    """Write the plans of a cache folder to a bundle.

    Without options: all usable plans, and what 'trivet exec' kept. Everything is verified while it
    is read. The same entries make the same bytes.
    """
    from trivet.plans import bundles

    out = Output(json=json)
    with open_existing(cache_dir, layers=layer) as cache, out.progress("bundling") as step:
        entries = bundles.choose(
            cache,
            release=release,
            backend=backend or "",
            folders=folders or not (release or model or backend),
        )
        if model:
            entries = _of_model(cache, entries, model)
        made = bundles.create(cache, file, entries, sign=sign, progress=_told(step, "bundling"))
    if json:
        out.document({"file": file, **msgspec.structs.asdict(made), "signed": sign is not None})
        return
    out.fields(
        [
            ("file", str(file)),
            ("bundle", made.id.hex()[:12]),
            ("holds", f"{counted(made.entries, 'entry')}, {in_bytes(made.unpacked)}"),
            ("size", f"{in_bytes(made.size)} in {counted(made.chunks, 'chunk')}"),
            ("signed", "yes" if sign is not None else "no"),
        ]
    )


def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE|FOLDER", help="A bundle, or a layer of installed ones.")
    ],
    trust: Trust = None,
    cache_dir: CacheDir = None,
    json: AsJson = False,
) -> None:
    """Read all of a bundle, or of a layer, and check it against its digests and its signature.

    With --trust, a trusted writer must have signed it. Exits with 1 when something is wrong.
    """
    from trivet.plans import bundles

    out = Output(json=json)
    with out.progress("verifying") as step:
        told = _told(step, "verifying")
        if file.is_dir():
            verdicts = bundles.verify_layer(file, trust=trust or (), progress=told)
            report_layer(out, file, verdicts)
            return
        found = bundles.verify(
            file, trust=_writers(trust, cache_dir), required=bool(trust), progress=told
        )
    report(out, found)


def install(
    file: BundleFile,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The layer, made when it is missing.")
    ],
    trust: Trust = None,
    allow_unsigned: Annotated[
        bool,
        typer.Option("--allow-unsigned", help="Install a bundle that nobody has signed."),
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove the bundles installed there before.")
    ] = False,
    private_volume: Annotated[
        bool,
        typer.Option(
            "--private-volume",
            help="Nobody else can reach the folder, though modes above it let everyone write.",
        ),
    ] = False,
    cache_dir: CacheDir = None,
    json: AsJson = False,
) -> None:
    """Install a bundle in a folder, for use as a layer below the cache folder.

    It is only installed when a trusted writer has signed it. Everything is verified before any of
    it can be seen. Bundles that are there stay, behind this one.
    """
    from trivet.plans import bundles

    out = Output(json=json)
    with out.progress("installing") as step:
        done = bundles.install(
            file,
            folder,
            trust=_writers(trust, cache_dir),
            allow_unsigned=allow_unsigned,
            replace=replace,
            private_volume=private_volume,
            progress=_told(step, "installing"),
        )
    if json:
        out.document({"layer": folder, **msgspec.structs.asdict(done)})
        return
    how = "was there already" if done.was_there else "installed"
    out.line(f"{counted(done.entries, 'entry')}, {in_bytes(done.size)}, {how} in {folder}")
    if len(done.bundles) > 1:
        out.line(f"{counted(len(done.bundles) - 1, 'bundle')} from before behind it")


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A bundle.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another bundle.")],
    json: AsJson = False,
) -> None:
    """Show what changes from one bundle to another."""
    from trivet.plans import bundles

    out = Output(json=json)
    found = bundles.diff(a, b)
    if json:
        out.document(
            {
                **{name: list(map(changed, changes)) for name, changes in changes_of(found)},
                "same": found.same,
                "bytes_shared": found.shared,
                "bytes_new": found.new,
            }
        )
    else:
        print_difference(out, found)


def keygen(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The private key to write.")],
    json: AsJson = False,
) -> None:
    """Make a key to sign bundles with: FILE, and FILE.pub for those who are to trust it.

    In lists of trusted writers it has the name of the file, without its suffix.
    """
    from trivet.stores.bundles import make_key

    out = Output(json=json)
    mark = make_key(file, file.stem)
    public = file.with_name(f"{file.name}.pub")
    if json:
        out.document({"private": file, "public": public, "fingerprint": mark})
    else:
        out.fields([("private", str(file)), ("public", str(public)), ("fingerprint", mark)])


for _each in (create, verify, install, diff, keygen):
    any_command(_each, group)


def _writers(trust: Sequence[Path] | None, cache_dir: Path | None) -> list[Path]:
    """The lists of those who are trusted."""
    own = cache_folder(cache_dir) / _WRITERS
    return [*(trust or ()), *([own] if own.is_file() else ())]


def _of_model(cache: Cache, entries: Iterable[StoredEntry], text: str) -> list[StoredEntry]:
    names = {row.digest: row.model for row in read_rows(cache, "plan")}
    return [
        each
        for each in entries
        if each.key.space.startswith("folder") or text in names.get(each.key.digest.hex(), "")
    ]


def _told(step: Step, what: str) -> Callable[[int, int], None]:
    return lambda done, total: step(done, total, what)
