"""Policies: what to evict. Pure; the memory tier, stores and replay run the same objects."""

from trivet.policies.gdsf import GDSF
from trivet.policies.grouped import Grouped, Quota
from trivet.policies.lru import LRU
from trivet.policies.policy import MakePolicy, Policy, Token
from trivet.policies.s3fifo import S3FIFO

__all__ = ["GDSF", "LRU", "S3FIFO", "Grouped", "MakePolicy", "Policy", "Quota", "Token"]
