"""What a function computes with besides its arguments: its code, and all that the code refers to.

The code is that of the running function and not its source file, which may have been edited since.
Functions and classes of the same program are followed, so that an edit in a helper counts; packages
count by their release. What the code refers to and no key can hold is an error, not a risk.
"""

from __future__ import annotations

import types

from blake3 import blake3

from trivet.entries.encoding import encode
from trivet.values.packages import PYTHON
from trivet.values.walk import Walk
from trivet.values.watch import Watch


class Identity:
    """The digest of a function or class, found when it is first asked for.

    It is found anew when a name that the code refers to leads to another object, when such an
    object has changed, or when a function was given other code, as happens in notebooks.

    Args:
        root: whose code it is.
        declared: objects that are in the key anyway; nothing more is asked of them.
        ignored: names that can't change a result.
        more: other functions that count as it does.
        has_tenants: whether results are of one tenant each; else nothing may be called whose are.
    """

    def __init__(
        self,
        root: types.FunctionType | type,
        declared: tuple[object, ...] = (),
        ignored: frozenset[str] = frozenset(),
        more: tuple[object, ...] = (),
        has_tenants: bool = False,
    ) -> None:
        self._has_tenants = has_tenants
        self._root = root
        self._more = more
        self._declared = declared
        self._ignored = ignored
        self._found: tuple[Watch, bytes] | None = None  # replaced whole: threads read it

    def digest(self) -> bytes:
        """32 bytes. Raises `Unkeyable`."""
        return self.now()[1]

    def now(self) -> tuple[Watch, bytes]:
        """The digest, and what tells how long it holds. Raises `Unkeyable`."""
        found = self._found
        if found is None or not found[0].holds():
            walk = Walk(self._declared, self._ignored, self._has_tenants)
            digest = blake3(encode([PYTHON, walk.of(self._root, self._more)])).digest()
            self._found = found = walk.watch, digest
        return found
