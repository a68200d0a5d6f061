"""Keys: typed fields, canonical bytes, digest, field-by-field difference."""

from trivet.keys.fingerprint import Fingerprint
from trivet.keys.key import ABSENT, FieldDifference, FieldValue, Key, read_fields

__all__ = ["ABSENT", "FieldDifference", "FieldValue", "Fingerprint", "Key", "read_fields"]
