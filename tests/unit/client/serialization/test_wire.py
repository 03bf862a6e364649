import pytest

from oncelog.serialization.errors import SerializationError
from oncelog.serialization.wire import framed, unframed, with_indexes, without_indexes


def test_the_id_stands_big_endian_behind_a_zero_byte() -> None:
    assert framed(258, b"payload") == b"\x00\x00\x00\x01\x02payload"
    assert unframed(b"\x00\x00\x00\x01\x02payload") == (258, b"payload")


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"\1\0\0\0\1x", b'{"a":1}'])
def test_bytes_without_an_id_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        unframed(data)


@pytest.mark.parametrize(
    ("indexes", "written"),
    [([0], b"\x00"), ([1], b"\x02\x02"), ([0, 0], b"\x04\x00\x00"), ([2, 100], b"\x04\x04\xc8\x01")],
)
def test_the_indexes_of_a_message_are_zigzag_varints(indexes: list[int], written: bytes) -> None:
    assert with_indexes(indexes, b"x") == written + b"x"
    assert without_indexes(written + b"x") == (indexes, b"x")


@pytest.mark.parametrize("data", [b"", b"\x02", b"\xff", b"\xff" * 10, b"\x01", b"\xfe\x7f"])
def test_indexes_that_are_cut_off_or_too_many_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        without_indexes(data)
