"""The policies that ship, against the public contract."""

from __future__ import annotations

from trivet.policies import GDSF, LRU, S3FIFO, Grouped, Policy, Quota
from trivet.testing import PolicyContract


class TestGDSF(PolicyContract):
    def make(self) -> Policy:
        return GDSF()


class TestLRU(PolicyContract):
    def make(self) -> Policy:
        return LRU()


class TestS3FIFO(PolicyContract):
    def make(self) -> Policy:
        return S3FIFO()


class TestGrouped(PolicyContract):
    def make(self) -> Policy:
        return Grouped({"a": Quota(size=100), "b": Quota(entries=3)}, make=LRU)


class TestGroupedWithoutQuotas(PolicyContract):
    def make(self) -> Policy:
        return Grouped()
