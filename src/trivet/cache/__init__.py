"""The engine: may I use what is stored, and if not, who makes it?"""

from typing import TYPE_CHECKING

from trivet.lazy import lazily

if TYPE_CHECKING:
    from trivet.cache.artifact import Artifact, ArtifactLease
    from trivet.cache.cache import Cache
    from trivet.cache.changes import ChangedItems, ChangedRows, Replaced, Unchanged, apply
    from trivet.cache.lease import Lease
    from trivet.cache.outcomes import Failed, Hit, Miss
    from trivet.cache.stored import Neighbour, StoredEntry

__getattr__ = lazily(
    __name__,
    {
        "Artifact": "artifact",
        "ArtifactLease": "artifact",
        "Cache": "cache",
        "ChangedItems": "changes",
        "ChangedRows": "changes",
        "Failed": "outcomes",
        "Hit": "outcomes",
        "Lease": "lease",
        "Miss": "outcomes",
        "Neighbour": "stored",
        "Replaced": "changes",
        "StoredEntry": "stored",
        "Unchanged": "changes",
        "apply": "changes",
    },
)

__all__ = [
    "Artifact",
    "ArtifactLease",
    "Cache",
    "ChangedItems",
    "ChangedRows",
    "Failed",
    "Hit",
    "Lease",
    "Miss",
    "Neighbour",
    "Replaced",
    "StoredEntry",
    "Unchanged",
    "apply",
]
