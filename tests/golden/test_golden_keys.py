"""Keys of this release are the keys of every earlier one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trivet.keys import Fingerprint, Key

KEYS = {
    "no fields": Key("value/1", {}),
    "every type": Key(
        "value/1",
        {
            "none": None,
            "true": True,
            "one": 1,
            "one as float": 1.0,
            "minus zero": -0.0,
            "infinity": float("inf"),
            "not a number": float("nan"),
            "least": -(1 << 63),
            "most": (1 << 64) - 1,
            "text": "tüp 猫 \U0001f408",
            "bytes": b"\x00\xff",
            "fingerprint": Fingerprint.of(b"weights"),
            "list": [1, [2, "3"], {"four": 4}],
            "empty list": [],
            "empty map": {},
        },
    ),
    "sizes of MessagePack": Key(
        "value/1",
        {f"i{n}": (1 << n) - 1 for n in (0, 5, 7, 8, 15, 16, 31, 32, 63)}
        | {f"s{n}": "s" * n for n in (0, 31, 32, 255, 256)}
        | {f"b{n}": b"b" * n for n in (0, 255, 256)}
        | {f"l{n}": [0] * n for n in (15, 16)},
    ),
    "a plan": Key(
        "plan/1",
        {
            "graph": {"structure": bytes(range(32)), "weights": bytes(range(32, 64))},
            "backend": "onnxruntime",
            "options": {"level": 99, "providers": ["CPUExecutionProvider"], "threads": 2},
            "isa": ["avx2", "avx512f", "fma"],
            "shapes": {"x": [8, 3, 224, 224]},
        },
    ),
}
FINGERPRINTS = {
    "of nothing": Fingerprint.of(b""),
    "of content": Fingerprint.of(b"trivet"),
    "chain": Fingerprint.chain(Fingerprint.of(b"parent"), b"part"),
    "parts": Fingerprint.of_parts([b"a", b"", b"bc"]),
}
STORED = json.loads((Path(__file__).parent / "keys.json").read_text())


def test_the_golden_file_is_complete() -> None:
    assert set(STORED["keys"]) == set(KEYS)
    assert set(STORED["fingerprints"]) == set(FINGERPRINTS)


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_encoded_as_ever(name: str) -> None:
    assert KEYS[name].canonical.hex() == STORED["keys"][name]["canonical"]
    assert KEYS[name].digest.hex() == STORED["keys"][name]["digest"]


@pytest.mark.parametrize("name", KEYS)
def test_an_old_key_is_read(name: str) -> None:
    old = Key.from_canonical(bytes.fromhex(STORED["keys"][name]["canonical"]))
    assert old == KEYS[name]
    assert old.diff(KEYS[name]) == ()


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_a_fingerprint_is_as_ever(name: str) -> None:
    assert FINGERPRINTS[name].hex() == STORED["fingerprints"][name]
