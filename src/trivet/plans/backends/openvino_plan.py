"""The file of a plan: streamed out of OpenVINO, mapped back in."""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from trivet.plans.model import Array


def export_plan(compiled: Any, path: Path) -> int:
    """Write the compiled model to the new file ``path``; returns its size in bytes.

    Nothing is buffered: weights go to the file tensor by tensor. Raises `OSError`.
    """
    with path.open("xb") as file:
        stream = _Stream(file)
        compiled.export_model(stream)
        if stream.error is not None:
            raise stream.error
        return file.seek(0, os.SEEK_END)


def map_plan(path: Path) -> Array:
    """The file's bytes, mapped. Private, since OpenVINO asks for memory that could be written."""
    import numpy as np

    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)


class _Stream(io.BytesIO):
    """A file in the guise of a `BytesIO`, which is all that OpenVINO writes to.

    OpenVINO ignores what a stream raises, so the first error is kept and the rest is swallowed. It
    goes back in the file to fill in a table of offsets, hence `seek`.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        return self._unless_failed(lambda: self.file.write(data), len(data))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._unless_failed(lambda: self.file.seek(offset, whence), 0)

    def tell(self) -> int:
        return self._unless_failed(self.file.tell, 0)

    def _unless_failed(self, operation: Callable[[], int], otherwise: int) -> int:
        if self.error is None:
            try:
                return operation()
            except OSError as error:
                self.error = error
        return otherwise
