"""The schema id precedes a value, in the format of Confluent's serializers."""

from __future__ import annotations

import pytest

from oncelog_pipeline.values.wire import InvalidValue, framed, unframed


def test_the_frame_has_confluents_format() -> None:
    assert framed(258, b"x") == b"\x00\x00\x00\x01\x02x"
    assert unframed(b"\x00\x00\x00\x01\x02x") == (258, b"x")
    assert unframed(framed(2**31, b"")) == (2**31, b"")


@pytest.mark.parametrize("value", [b"", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01x", b'{"a":1}'])
def test_a_frame_without_schema_id_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidValue):
        unframed(value)
