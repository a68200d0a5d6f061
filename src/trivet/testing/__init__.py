"""The public testing kit: contracts for what plugs into Trivet, fakes, and fault injectors.

Contracts are pytest classes: subclass one, say how to make the thing, and its suite runs. They need
pytest and hypothesis; the fakes need neither. Nothing in Trivet imports this package.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from trivet.testing.clock import FakeClock
from trivet.testing.recorder import Recorder
from trivet.testing.stores import Fault, FaultyStore, MemoryStore

if TYPE_CHECKING:
    from trivet.testing.backend_contract import BackendContract
    from trivet.testing.codec_contract import CodecContract
    from trivet.testing.file_store_contract import FileStoreContract
    from trivet.testing.policy_contract import PolicyContract
    from trivet.testing.store_contract import StoreContract

_CONTRACTS = {
    "BackendContract": "trivet.testing.backend_contract",
    "CodecContract": "trivet.testing.codec_contract",
    "FileStoreContract": "trivet.testing.file_store_contract",
    "PolicyContract": "trivet.testing.policy_contract",
    "StoreContract": "trivet.testing.store_contract",
}

__all__ = [
    "BackendContract",
    "CodecContract",
    "FakeClock",
    "Fault",
    "FaultyStore",
    "FileStoreContract",
    "MemoryStore",
    "PolicyContract",
    "Recorder",
    "StoreContract",
]


def __getattr__(name: str) -> Any:
    module = _CONTRACTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if module not in sys.modules:
        import pytest

        pytest.register_assert_rewrite(module)  # so that a failed contract shows its values
    return getattr(importlib.import_module(module), name)
