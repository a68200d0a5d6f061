"""Entries: the one sealed form in which a key, a descriptor and a value are kept and moved."""

from trivet.entries.descriptor import Descriptor, Failure
from trivet.entries.manifest import FileRecord, Manifest
from trivet.entries.sealed import HEAD_SIZE, Sealed, head_length, payload_length, peek, seal, unseal

__all__ = [
    "HEAD_SIZE",
    "Descriptor",
    "Failure",
    "FileRecord",
    "Manifest",
    "Sealed",
    "head_length",
    "payload_length",
    "peek",
    "seal",
    "unseal",
]
