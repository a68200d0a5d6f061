"""Small exported PyTorch programs; deterministic for the same arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

WIDTH = 16


class Dense(torch.nn.Module):
    """``x`` (N, 16) to ``y`` (N, 4). It has what tempts a compiler to bake weights in.

    A bias of four elements and a scalar are small; the weights of a fresh normalisation are all
    alike; a table that is no weight stands in the code.
    """

    def __init__(self, seed: int = 0, *, fresh: bool = True, scale: float = 2.0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.tied = torch.nn.Linear(WIDTH, WIDTH)
        self.tied.weight = self.first.weight
        self.last = torch.nn.Linear(WIDTH, 4)
        self.register_buffer("scale", torch.tensor(scale))
        self.register_buffer("shift", torch.arange(4.0), persistent=False)
        if not fresh:
            torch.nn.init.normal_(self.norm.weight)
            torch.nn.init.normal_(self.norm.bias)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        table = torch.tensor([0.5, -1.0, 2.0, 4.0])
        hidden = torch.relu(self.tied(self.norm(self.first(x))))
        return {"y": self.last(hidden) * self.scale + self.shift + table}


class Convolutions(torch.nn.Module):
    """``x`` (1, 3, 32, 32) to a tuple of logits and features; batch norm as in inference."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 8, 3, padding=1),
        )
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.features(x).mean((2, 3))
        return self.head(found), found


def save(module: torch.nn.Module, path: Path, *args: Any, **dynamic: Any) -> Path:
    """Export ``module`` for ``args`` and save it; returns ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    program = torch.export.export(module.eval(), args, **dynamic)
    torch.export.save(program, path)
    return path


def dense(path: Path, seed: int = 0, **changes: Any) -> Path:
    """A saved `Dense` whose batch is 1 to 64."""
    batch = torch.export.Dim("N", min=1, max=64)
    module = Dense(seed, **changes)
    return save(module, path, torch.randn(4, WIDTH), dynamic_shapes=({0: batch},))


def convolutions(path: Path, seed: int = 0) -> Path:
    """A saved `Convolutions`."""
    return save(Convolutions(seed), path, torch.randn(1, 3, 32, 32))
