"""ResNet-50 and a BERT-base-like encoder in PyTorch, with random weights kept in a file.

All sides of a benchmark build the module without memory and map the same weights, so that none of
them pays for random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """Three convolutions and a way around them."""

    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        outer = 4 * inner
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, outer, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        around: nn.Module = nn.Identity()
        if channels != outer:
            convolution = nn.Conv2d(channels, outer, 1, stride, bias=False)
            around = nn.Sequential(convolution, nn.BatchNorm2d(outer))
        self.around = around

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.around(x))


class ResNet50(nn.Module):
    """He et al., Deep Residual Learning, table 1."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks, channels = [], 64
        for inner, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for n in range(depth):
                blocks.append(Bottleneck(channels, inner, stride if n == 0 else 1))
                channels = 4 * inner
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Layer(nn.Module):
    """Self-attention and a feed-forward network, each with a normalisation after it."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = self.first(x + self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return self.second(x + self.down(nn.functional.gelu(self.up(x))))


class BertBase(nn.Module):
    """Twelve layers of 768, 110 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, 768), nn.Embedding(512, 768)
        self.normalise = nn.LayerNorm(768)
        self.layers = nn.Sequential(*(Layer() for _ in range(12)))

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.layers(self.normalise(self.words(ids) + self.places(places)))


MODELS: dict[str, Callable[[], nn.Module]] = {"ResNet-50": ResNet50, "BERT-base": BertBase}


def inputs(name: str) -> tuple[Tensor]:
    """One request: an image, or 128 tokens."""
    if name == "ResNet-50":
        return (torch.arange(3 * 224 * 224, dtype=torch.float32).view(1, 3, 224, 224) % 7 / 7,)
    return (torch.arange(1, 129).view(1, 128),)


def write_weights(name: str, path: Path) -> None:
    """Random weights, the same for the same name."""
    torch.manual_seed(0)
    torch.save(MODELS[name]().state_dict(), path)


def build(name: str, weights: Path) -> nn.Module:
    """The model in evaluation mode; its weights are mapped."""
    with torch.device("meta"):
        model = MODELS[name]()
    state = torch.load(weights, mmap=True, weights_only=True)
    model.load_state_dict(state, assign=True)
    return model.eval().requires_grad_(False)
