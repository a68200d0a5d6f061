"""An image service in miniature: one encoder, and many things that are made of what it sees.

    python examples/image_variants.py FOLDER PICTURE...

A picture is a number here, and its pixels are random. Each stage is memoised, and an answer is a
tree of stages. All answers about a picture share its code: the encoder, which takes the time, runs
once for each picture, now and later, whatever is asked. Weights are random; what matters is who
computes what.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from trivet import Cache
from trivet.values import Node, memo

SIZE, PATCH, WIDTH = 64, 8, 32
LABELS = ("a cat", "a mat", "a hat")
Array = np.ndarray[Any, np.dtype[np.float32]]


def weights(seed: int, *shape: int) -> Array:
    """Of a layer: the same for the same seed."""
    return np.random.default_rng(seed).normal(0, 0.1, shape).astype(np.float32)


class Service:
    """The stages, kept in ``cache``. ``computed`` notes what was not there."""

    def __init__(self, cache: Cache) -> None:
        self.computed: list[str] = []
        computed = self.computed
        projection, labels = weights(1, PATCH * PATCH, WIDTH), weights(2, WIDTH, len(LABELS))

        @memo(cache, ignore=["computed"])
        def prepare(picture: int, mirrored: bool) -> Array:
            computed.append("prepare")
            pixels = np.random.default_rng(picture).random((SIZE, SIZE), np.float32)
            return pixels[:, ::-1] if mirrored else pixels

        @memo(cache, ignore=["computed"])
        def encode(pixels: Array) -> Array:
            computed.append("encode")
            patches = pixels.reshape(SIZE // PATCH, PATCH, SIZE // PATCH, PATCH).swapaxes(1, 2)
            code: Array = np.tanh(patches.reshape(-1, PATCH * PATCH) @ projection).mean(axis=0)
            return code

        @memo(cache, ignore=["computed"])
        def label(code: Array) -> str:
            computed.append("label")
            return LABELS[int((code @ labels).argmax())]

        @memo(cache, ignore=["computed"])
        def likeness(code: Array, other: Array) -> float:
            computed.append("likeness")
            return float(code @ other / np.linalg.norm(code) / np.linalg.norm(other))

        self._stages = prepare, encode, label, likeness

    def code(self, picture: int, *, mirrored: bool = False) -> Node[Array]:
        """What the encoder sees, to be computed when something that is wanted needs it."""
        prepare, encode, _, _ = self._stages
        return encode.node(prepare.node(picture, mirrored))

    def answers(self, picture: int) -> dict[str, Node[Any]]:
        """What can be asked about a picture."""
        _, _, label, likeness = self._stages
        code = self.code(picture)
        return {
            "label": label.node(code),
            "symmetry": likeness.node(code, self.code(picture, mirrored=True)),
            "like number 1": likeness.node(code, self.code(1)),
        }


def main(folder: str, *pictures: str) -> None:
    """Ask everything about the pictures, and say what was computed for each answer."""
    with Cache.open(folder) as cache:
        service = Service(cache)
        for picture in pictures:
            for name, answer in service.answers(int(picture)).items():
                value = answer.value()
                done = ", ".join(service.computed) or "nothing"
                print(f"picture {picture}, {name}: {value}; computed {done}")
                service.computed.clear()


if __name__ == "__main__":
    main(*sys.argv[1:])
