"""Tensors of PyTorch, as parts of keys and as values."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch

from trivet.errors import Unkeyable
from trivet.values.forms import digest_of

# PyTorch crashes where such a tensor is made of bytes.
_QUANTISED = {torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4}
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
        if value.numel() and not value.untyped_storage().nbytes():
            raise ValueError("its memory was given away")
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
    return _told(
        tuple((each, torch.is_autocast_enabled(each), torch.get_autocast_dtype(each))
              for each in ("cpu", "cuda")),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.are_deterministic_algorithms_enabled(),
        _precisions(),
    )  # fmt: skip


@functools.lru_cache(maxsize=64)  # since each call of a memo asks
def _told(
    autocast: tuple[tuple[str, bool, torch.dtype], ...],
    default: torch.dtype,
    device: torch.device,
    deterministic: bool,
    precisions: tuple[str | None, ...],
) -> tuple[str, ...]:
    state = {
        "default": (default, torch.float32),
        "device": (device, torch.device("cpu")),
        "deterministic": (deterministic, False),
    }
    names = ("float32", *(f"{backend} {what}" for backend, what in _PRECISIONS))
    now = {
        name: "ieee" if each in _FULL else each
        for name, each in zip(names, precisions, strict=False)
    }
    return (
        *(f"autocast {each} {dtype}" for each, is_on, dtype in autocast if is_on),
        *(f"{name} {now}" for name, (now, begun) in state.items() if now != begun),
        *(f"{name} {each}" for name, each in now.items()
          if each is not None and each != _BEGUN.get(name, "ieee")),
    )  # fmt: skip


def _precisions() -> tuple[str | None, ...]:
    """Of matrix products, convolutions and recurrent layers, under the old name and the new."""
    old: str | None = None
    with contextlib.suppress(RuntimeError):  # what was set under a new name has none of the old
        old = torch.get_float32_matmul_precision()
    getter: Any = getattr(torch._C, "_get_fp32_precision_getter", None)  # since PyTorch 2.9
    return (old, *(getter(*each) for each in _PRECISIONS)) if getter is not None else (old,)


def flat(value: torch.Tensor) -> tuple[str, tuple[int, ...], memoryview]:
    """Type, shape and bytes of a tensor to be kept. Raises TypeError."""
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        kind = "quantised" if value.is_quantized else "nested" if value.is_nested else "sparse"
        raise TypeError(f"a {kind} tensor can't be kept; return a plain one")
    if value.device.type != "cpu":
        raise TypeError(f"a tensor on {value.device} can't be kept; move it to the CPU first")
    if value.requires_grad:
        raise TypeError(
            "a tensor with a gradient can't be kept; detach it, or compute in no_grad()"
        )
    return str(value.dtype).removeprefix("torch."), tuple(value.shape), _bytes_of(value)


def tensor(name: str, shape: tuple[int, ...], data: memoryview) -> torch.Tensor:
    """The tensor that `flat` took apart, with memory of its own. Raises ValueError."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or dtype in _QUANTISED:
        raise ValueError(f"there is no type {name} of tensors")
    try:
        if not data.nbytes:
            return torch.empty(0, dtype=dtype).reshape(shape)
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)
    except RuntimeError as error:
        raise ValueError(f"these bytes are no tensor of {shape}: {error}") from error


def _bytes_of(value: torch.Tensor) -> memoryview:
    whole = value.resolve_conj().resolve_neg().contiguous().reshape(-1)
    array: Any = whole.view(torch.uint8).numpy()
    return memoryview(array)
