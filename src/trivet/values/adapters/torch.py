"""Tensors of PyTorch, as parts of keys and as values."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from trivet.errors import Unkeyable
from trivet.values.forms import digest_of

_FULL = ("none", "highest")
_BEGUN = {"cuda conv": "tf32", "cuda rnn": "tf32"}
_PRECISIONS = [(each, what) for each in ("cuda", "mkldnn") for what in ("matmul", "conv", "rnn")]


def parts_of(value: Any, kind: type) -> list[tuple[str, object]] | None:
    """Everything that a function could see of a tensor and its like; None for other things.

    Raises `Unkeyable`.
    """
    if kind in (torch.Tensor, torch.nn.Parameter):
        return _parts(value)
    if kind in (torch.dtype, torch.device, torch.layout, torch.memory_format):
        return [("name", str(value))]
    if kind is torch.Size:
        return [("sizes", tuple(value))]
    return None


def _parts(value: torch.Tensor) -> list[tuple[str, object]]:
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        raise Unkeyable(f"a tensor of layout {value.layout} has no fixed bytes")
    try:
        data = _bytes_of(value.detach().cpu())
    except (RuntimeError, ValueError) as error:  # on no device, inside a transformation, lazy
        raise Unkeyable(f"this tensor has no bytes: {error}") from None
    # A module's parameters have gradients and marks of whoever trains or loads it.
    besides: list[tuple[str, object]] = []
    if type(value) is torch.Tensor:
        besides = [*vars(value).items()]
        if value.is_leaf and value.grad is not None:
            besides.append(("grad", value.grad))
    return [
        ("dtype", str(value.dtype)),
        ("shape", tuple(value.shape)),
        ("device", str(value.device)),
        ("requires_grad", value.requires_grad),
        ("data", digest_of(data)),
        *besides,
    ]


def numerics() -> tuple[str, ...]:
    """What the program has set that changes results; nothing where all is as PyTorch begins."""
    autocast = [
        f"autocast {device} {torch.get_autocast_dtype(device)}"
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    ]
    state = {
        "default": (torch.get_default_dtype(), torch.float32),
        "device": (torch.get_default_device(), torch.device("cpu")),
        "deterministic": (torch.are_deterministic_algorithms_enabled(), False),
    }
    changed = (f"{name} {now}" for name, (now, begun) in state.items() if now != begun)
    return (*autocast, *changed, *_precisions())


def _precisions() -> list[str]:
    """Of matrix products, convolutions and recurrent layers, under the old names and the new."""
    found = {}
    with contextlib.suppress(RuntimeError):  # what was set under a new name has none of the old
        found["float32"] = torch.get_float32_matmul_precision()
    getter: Any = getattr(torch._C, "_get_fp32_precision_getter", None)  # since PyTorch 2.9
    if getter is not None:
        found |= {f"{backend} {what}": getter(backend, what) for backend, what in _PRECISIONS}
    told = {name: "ieee" if now in _FULL else now for name, now in found.items()}
    return [f"{name} {now}" for name, now in told.items() if now != _BEGUN.get(name, "ieee")]


def flat(value: torch.Tensor) -> tuple[str, tuple[int, ...], memoryview]:
    """Type, shape and bytes of a tensor to be kept. Raises TypeError."""
    if value.layout is not torch.strided or value.is_quantized or value.device.type != "cpu":
        raise TypeError(
            f"a tensor of {value.layout} on {value.device} can't be kept; move it to the CPU first"
        )
    if value.requires_grad:
        raise TypeError(
            "a tensor with a gradient can't be kept; detach it, or compute in no_grad()"
        )
    return str(value.dtype).removeprefix("torch."), tuple(value.shape), _bytes_of(value)


def tensor(name: str, shape: tuple[int, ...], data: memoryview) -> torch.Tensor:
    """The tensor that `flat` took apart, with memory of its own. Raises ValueError."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"there is no type {name} of tensors")
    if not data.nbytes:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def _bytes_of(value: torch.Tensor) -> memoryview:
    whole = value.resolve_conj().resolve_neg().contiguous().reshape(-1)
    array: Any = whole.view(torch.uint8).numpy()
    return memoryview(array)
