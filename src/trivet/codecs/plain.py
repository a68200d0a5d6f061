"""Codecs for bytes and for plain data."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Bytes:
    """Bytes as they are."""

    id = "bytes/1"
    shareable = True

    def encode(self, value: bytes) -> bytes:
        """``value`` itself. Raises TypeError when it is not bytes."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"expected bytes, got {type(value).__name__}")
        return bytes(value)

    def decode(self, raw: memoryview) -> bytes:
        """A copy of ``raw``."""
        return raw.tobytes()


class MsgPack(Generic[T]):
    """Values of one type (plain data, `msgspec.Struct`, dataclass) as MessagePack.

    Args:
        kind: the type to decode into; decoding is strict. Its full name is part of the codec's id.
    """

    shareable = False

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self.id = f"msgpack/1:{_name(kind)}"

    def encode(self, value: T) -> bytes:
        """Raises TypeError or ValueError when ``value`` has no MessagePack form."""
        try:
            return self._encoder.encode(value)
        except (OverflowError, RecursionError) as error:
            raise ValueError(f"this value has no MessagePack form: {error}") from error

    def decode(self, raw: memoryview) -> T:
        """Raises ValueError (mostly `msgspec.ValidationError`) on other data."""
        try:
            return self._decoder.decode(raw)
        except RecursionError as error:
            raise ValueError(f"these bytes are nested too deep: {error}") from error


def _name(kind: object) -> str:
    """``"int"``, ``"app.models.Answer"``, ``"dict[str, int]"``: arguments of generics included."""
    if isinstance(kind, type) and not hasattr(kind, "__args__"):
        # The script is another module in the processes that `multiprocessing` spawns.
        module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
        return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
    return repr(kind)
