"""A text-to-image pipeline in miniature: two text encoders, a denoiser, a decoder.

    python examples/text_to_image.py FOLDER PROMPT SEED...

Each stage is memoised, and a picture is a tree of stages: the prompt is encoded once for all seeds,
now and later, and a picture that was made before costs one look-up. Weights are random; what
matters is who computes what.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

from trivet import Cache
from trivet.values import Node, memo

WIDTH, WORDS, STEPS = 32, 16, 4


class TextEncoder(nn.Module):
    """Letters to one vector a position."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(256, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True)

    def forward(self, letters: Tensor) -> Tensor:
        words: Tensor = self.layer(self.table(letters))
        return words


class Denoiser(nn.Module):
    """A step from noise to a picture's code, led by the text."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.mix = nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, code: Tensor, text: Tensor) -> Tensor:
        return code - 0.1 * torch.tanh(self.mix(torch.cat([code, text.expand(len(code), -1)], 1)))


class Pipeline:
    """The stages, kept in ``cache``. ``computed`` notes what was not there."""

    def __init__(self, cache: Cache) -> None:
        self.computed: list[str] = []
        computed = self.computed
        encoders = (TextEncoder(1).eval(), TextEncoder(2).eval())
        denoiser = Denoiser().eval()
        torch.manual_seed(4)
        decoder = nn.Linear(WIDTH, 3 * 8 * 8).eval()

        @memo(cache, ignore=["computed"])
        def encode(prompt: str, which: int) -> Tensor:
            computed.append(f"encode {which}")
            letters = torch.tensor([[*prompt.encode().ljust(WORDS)[:WORDS]]])
            with torch.no_grad():
                text: Tensor = encoders[which](letters).mean(1)
            return text

        @memo(cache, ignore=["computed"])
        def denoise(texts: list[Tensor], seed: int, steps: int) -> Tensor:
            computed.append(f"denoise {seed}")
            code = torch.randn(1, WIDTH, generator=torch.Generator().manual_seed(seed))
            with torch.no_grad():
                for _ in range(steps):
                    code = denoiser(code, torch.cat(texts, 1))
            return code

        @memo(cache, ignore=["computed"])
        def decode(code: Tensor) -> Tensor:
            computed.append("decode")
            with torch.no_grad():
                picture: Tensor = decoder(code).reshape(3, 8, 8)
            return picture

        self._stages = encode, denoise, decode

    def picture(self, prompt: str, seed: int) -> Node[Tensor]:
        """A picture of shape (3, 8, 8), to be computed when it is wanted."""
        encode, denoise, decode = self._stages
        texts = [encode.node(prompt, 0), encode.node(prompt, 1)]
        return decode.node(denoise.node(texts, seed, STEPS))


def main(folder: str, prompt: str, *seeds: str) -> None:
    """Make the pictures, and say what was computed for each."""
    with Cache.open(folder) as cache:
        pipeline = Pipeline(cache)
        for seed in seeds:
            picture = pipeline.picture(prompt, int(seed)).value()
            done = ", ".join(pipeline.computed) or "nothing"
            print(f"seed {seed}: mean {picture.mean():+.4f}; computed {done}")
            pipeline.computed.clear()


if __name__ == "__main__":
    main(*sys.argv[1:])
