"""Policies: what to evict. Pure; the memory tier, stores and replay run the same objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trivet.lazy import lazily
from trivet.policies.gdsf import GDSF
from trivet.policies.policy import MakePolicy, Policy, Token

if TYPE_CHECKING:
    from trivet.policies.grouped import Grouped, Quota
    from trivet.policies.lru import LRU
    from trivet.policies.s3fifo import S3FIFO

__getattr__ = lazily(
    __name__, {"Grouped": "grouped", "LRU": "lru", "Quota": "grouped", "S3FIFO": "s3fifo"}
)

__all__ = ["GDSF", "LRU", "S3FIFO", "Grouped", "MakePolicy", "Policy", "Quota", "Token"]
