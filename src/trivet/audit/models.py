"""Small ONNX models, written without the ``onnx`` package, and damage to files.

Field numbers are those of ``onnx.proto``, as published at https://github.com/onnx/onnx.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from trivet.audit.finding import NotRun

WIDTH = 64
BATCH = 4
_CHANNELS = 32
_FLOAT = 1
_LONG_AGO = 1_700_000_000_000_000_000  # nanoseconds since the epoch


def dense(folder: Path, seed: int, *, width: int = WIDTH, external: bool = False) -> Path:
    """``y = relu(x @ w0) @ w1`` for ``x`` of (`BATCH`, ``width``); weights follow from ``seed``.

    With ``external``, weights lie in ``weights.bin`` and the model's own bytes are always the same.
    """
    draw = random.Random(seed)
    weights = {f"w{i}": _matrix(draw, width) for i in range(2)}
    nodes = [
        _node("MatMul", ["x", "w0"], ["h"]),
        _node("Relu", ["h"], ["r"]),
        _node("MatMul", ["r", "w1"], ["y"]),
    ]
    shapes = dict.fromkeys(weights, (width, width))
    tensors, at = [], 0
    for name, raw in weights.items():
        place = (at, len(raw)) if external else None
        tensors.append(_tensor(name, shapes[name], b"" if external else raw, place))
        at += len(raw)
    folder.mkdir(parents=True, exist_ok=True)
    if external:
        (folder / "weights.bin").write_bytes(b"".join(weights.values()))
    path = folder / "model.onnx"
    path.write_bytes(_model(nodes, tensors, {"x": (BATCH, width)}, {"y": (BATCH, width)}))
    return path


def first_weights(seed: int, width: int = WIDTH) -> bytes:
    """The first weights of `dense`, as they lie in memory."""
    return _matrix(random.Random(seed), width)


def convolution(folder: Path, seed: int) -> Path:
    """``y = conv(relu(conv(x)))`` for ``x`` of (1, 3, 8, 8)."""
    draw = random.Random(seed)
    shapes = {"k0": (_CHANNELS, 3, 3, 3), "k1": (_CHANNELS, _CHANNELS, 3, 3)}
    tensors = [
        _tensor(name, shape, _floats(draw, shape[0] * shape[1] * 9, (shape[1] * 9) ** -0.5), None)
        for name, shape in shapes.items()
    ]
    pads = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    nodes = [
        _node("Conv", ["x", "k0"], ["h"], pads),
        _node("Relu", ["h"], ["r"]),
        _node("Conv", ["r", "k1"], ["y"], pads),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(_model(nodes, tensors, {"x": (1, 3, 8, 8)}, {"y": (1, _CHANNELS, 8, 8)}))
    return path


def set_long_ago(folder: Path) -> None:
    """Give all files one old modification time, as ``rsync -t``, tar and image layers do."""
    for each in folder.iterdir():
        os.utime(each, ns=(_LONG_AGO, _LONG_AGO))


def flip_bit(path: Path, position: int, bit: int = 6) -> None:
    """Flip one bit of the byte at ``position``; by default the highest of a float's exponent but
    one, where the byte is its last."""
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def largest(folder: Path, pattern: str = "*") -> Path:
    """The largest file below ``folder``. Raises `NotRun` when there is none."""
    found = [each for each in folder.rglob(pattern) if each.is_file() and not each.is_symlink()]
    if not found:
        raise NotRun(f"nothing like {pattern} is kept in {folder.name}")
    return max(found, key=lambda each: each.stat().st_size)


def damage_plan(cache: Path) -> None:
    """Flip a bit in the largest file that Trivet keeps in ``cache``."""
    plan = largest(cache / "artifacts")
    flip_bit(plan, plan.stat().st_size // 2 // 4 * 4 + 3)


def _matrix(draw: random.Random, width: int) -> bytes:
    return _floats(draw, width * width, width**-0.5)


def _floats(draw: random.Random, count: int, scale: float) -> bytes:
    return struct.pack(f"<{count}f", *(draw.gauss(0, scale) for _ in range(count)))


# -- the wire format ---------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _model(
    nodes: Sequence[bytes],
    tensors: Sequence[bytes],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
) -> bytes:
    graph = b"".join(
        [
            *(_field(1, each) for each in nodes),
            _field(2, "graph"),
            *(_field(5, each) for each in tensors),
            *(_field(11, _value(name, shape)) for name, shape in inputs.items()),
            *(_field(12, _value(name, shape)) for name, shape in outputs.items()),
        ]
    )
    opset = _field(1, "") + _field(2, 17)
    return _field(1, 10) + _field(7, graph) + _field(8, opset)


def _node(
    kind: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    lists: Mapping[str, Sequence[int]] | None = None,
) -> bytes:
    integers = 7  # the type of an attribute that is a list of them
    return b"".join(
        [
            *(_field(1, each) for each in inputs),
            *(_field(2, each) for each in outputs),
            _field(4, kind),
            *(
                _field(5, b"".join([_field(1, name), *(_field(8, n) for n in values),
                                    _field(20, integers)]))
                for name, values in (lists or {}).items()
            ),
        ]
    )  # fmt: skip


def _tensor(name: str, shape: Sequence[int], raw: bytes, external: tuple[int, int] | None) -> bytes:
    head = [*(_field(1, size) for size in shape), _field(2, _FLOAT), _field(8, name)]
    if external is None:
        return b"".join([*head, _field(9, raw)])
    at = {"location": "weights.bin", "offset": str(external[0]), "length": str(external[1])}
    pairs = [_field(13, _field(1, key) + _field(2, value)) for key, value in at.items()]
    return b"".join([*head, *pairs, _field(14, 1)])


def _value(name: str, shape: Sequence[int]) -> bytes:
    sizes = b"".join(_field(1, _field(1, size)) for size in shape)
    tensor = _field(1, _FLOAT) + _field(2, sizes)
    return _field(1, name) + _field(2, _field(1, tensor))
