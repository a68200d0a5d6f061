"""Checks of layers: can they be used, and does this host see what is in them?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trivet.cli.doctor.section import Section, error, warning
from trivet.cli.output import counted
from trivet.errors import StoreError
from trivet.plans.backend import Finding


def check_layers(layers: Sequence[Path], folder: Path) -> tuple[list[Section], list[Path]]:
    """A section for each layer, and those that can be used. ``folder`` is the cache folder."""
    sections, usable = [], []
    for each in layers:
        section = _check(each, folder)
        sections.append(section)
        if all(found.code != "layer-unusable" for found in section.findings):
            usable.append(each)
    return sections, usable


def _check(root: Path, folder: Path) -> Section:
    from trivet.stores.layers import Layer

    try:
        layer = Layer(root)
        bundles = layer.bundles()
        entries = sum(1 for bundle in bundles for _ in layer.heads(bundle))
    except (StoreError, OSError) as trouble:
        finding = error(
            "layer-unusable",
            f"{getattr(trouble, 'message', trouble)}, so programs work without the layer",
            getattr(trouble, "hint", None) or "install the bundle again",
        )
        return Section(name="layer", summary=f"{root}: can't be used", findings=[finding])
    return Section(
        name="layer",
        summary=f"{root}: {counted(len(bundles), 'bundle')}, {counted(entries, 'entry')}",
        findings=_hidden(layer.root, folder),
    )


def _hidden(root: Path, folder: Path) -> list[Finding]:
    from trivet.cache import Cache

    if not folder.is_dir():
        return []
    try:
        with Cache.open(folder, layers=[root], strict=True) as cache:
            rows = [each for each in cache.entries() if each.layer is not None]
    except (StoreError, OSError):
        return []  # the section on the folder says what is wrong with it
    hidden = [each for each in rows if each.invalid is not None]
    if not hidden:
        return []
    return [
        warning(
            "layer-hidden",
            f"{len(hidden)} of {counted(len(rows), 'entry')} are not used on this host: they were "
            "dropped, invalidated, or found damaged",
            "'trivet bundle verify' of the layer finds damage; a new bundle is seen afresh",
        )
    ]
