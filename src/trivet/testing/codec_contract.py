"""The tests that every codec must pass."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trivet.codecs import Codec, LiveDecoder
from trivet.errors import CorruptEntry

# The same examples on every run. One test function serves all subclasses, which is what the health
# check warns about; it matters only to the example database, which such runs don't use.
_settings = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.differing_executors],
)


class CodecContract:
    """Subclass it in a test module and override `make` and `values`; pytest runs the suite.

    ::

        from hypothesis import strategies as st
        from trivet.testing import CodecContract

        class TestMyCodec(CodecContract):
            def make(self):
                return MyCodec()

            def values(self):
                return st.dictionaries(st.text(), st.integers())
    """

    def make(self) -> Codec[Any]:
        """A new codec."""
        raise NotImplementedError("override make()")

    def values(self) -> st.SearchStrategy[Any]:
        """Values that the codec takes."""
        raise NotImplementedError("override values()")

    def equal(self, one: Any, other: Any) -> bool:
        """Whether two values are the same; override where ``==`` is not the right question."""
        return bool(one == other)

    def test_the_id_is_a_name_with_a_version_and_does_not_change(self) -> None:
        codec = self.make()
        assert codec.id == self.make().id
        name, _, version = codec.id.partition("/")
        assert name
        assert version[:1].isdigit(), f"no version in the id {codec.id!r}"
        assert type(codec.shareable) is bool

    @_settings
    @given(data=st.data())
    def test_what_was_encoded_is_decoded(self, data: st.DataObject) -> None:
        value, codec = data.draw(self.values()), self.make()
        raw = self.make().encode(value)
        assert type(raw) is bytes
        assert self.equal(codec.decode(memoryview(raw)), value)
        if isinstance(codec, LiveDecoder):
            assert self.equal(codec.decode_live(raw), value)

    @_settings
    @given(data=st.data())
    def test_the_buffer_is_free_after_decoding(self, data: st.DataObject) -> None:
        codec, value = self.make(), data.draw(self.values())
        buffer = bytearray(codec.encode(value))
        with memoryview(buffer) as view:
            decoded = codec.decode(view)
        buffer[:] = b"\xee" * len(buffer)  # raises BufferError while anything holds a view
        buffer.clear()
        assert self.equal(decoded, value)

    @_settings
    @given(garbage=st.binary(max_size=200))
    def test_garbage_is_an_error_of_value(self, garbage: bytes) -> None:
        self._decode_or_refuse(garbage)

    @_settings
    @given(data=st.data())
    def test_damage_is_an_error_of_value_or_another_value(self, data: st.DataObject) -> None:
        raw = bytearray(self.make().encode(data.draw(self.values())))
        if raw and data.draw(st.booleans()):
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del raw[data.draw(st.integers(0, len(raw))) :]
        self._decode_or_refuse(bytes(raw))

    def test_nesting_without_end_is_an_error_of_value(self) -> None:
        for opening in (b"\x91", b"\x81\xa1a", b"[", b'{"a":'):
            self._decode_or_refuse(opening * 50_000)

    def _decode_or_refuse(self, raw: bytes) -> None:
        with contextlib.suppress(ValueError, CorruptEntry):
            self.make().decode(memoryview(raw))
