"""Layers: folders of installed bundles, read in place and never written by who reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.lazy import lazily

if TYPE_CHECKING:
    from trivet.stores.layers.installer import Installed, install
    from trivet.stores.layers.layer import Found, Layer, open_layers

__getattr__ = lazily(
    __name__,
    {
        "Found": "layer",
        "Installed": "installer",
        "Layer": "layer",
        "open_layers": "layer",
        "install": "installer",
    },
)

__all__ = ["Found", "Installed", "Layer", "install", "open_layers"]
