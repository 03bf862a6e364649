import pytest

from oncelog_protocol.records.batch import CorruptBatch
from oncelog_protocol.records.varint import encode_varint, encode_varlong, read_varint, read_varlong

INT32 = [0, -1, 1, 63, -64, 64, 8191, -8192, 8192, 2**31 - 1, -(2**31)]
INT64 = [*INT32, 2**31, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f"),
     (8192, "808001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f")],
)  # fmt: skip
def test_varints_have_the_known_bytes(value, encoded):
    assert encode_varint(value).hex() == encoded
    assert encode_varlong(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize("value", INT64)
def test_a_varlong_is_read_back_inside_other_bytes(value):
    encoded = encode_varlong(value)
    assert read_varlong(b"\xff\xff" + encoded + b"\xff", 2) == (value, 2 + len(encoded))


def test_the_longest_varints_are_read():
    assert len(encode_varint(-(2**31))) == 5
    assert len(encode_varlong(-(2**63))) == 10


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_encode_refuses_what_is_no_int32(value):
    with pytest.raises(ValueError, match="int32"):
        encode_varint(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_encode_refuses_what_is_no_int64(value):
    with pytest.raises(ValueError, match="int64"):
        encode_varlong(value)


@pytest.mark.parametrize("read", [read_varint, read_varlong])
@pytest.mark.parametrize("cut", [b"", b"\x80", b"\xff\xff"])
def test_a_cut_varint_is_corrupt(read, cut):
    with pytest.raises(CorruptBatch, match="cut"):
        read(cut, 0)


def test_a_position_beyond_the_end_is_corrupt():
    with pytest.raises(CorruptBatch, match="cut"):
        read_varint(b"\x00", 5)


def test_a_varint_of_too_many_bytes_is_corrupt():
    with pytest.raises(CorruptBatch, match="longer than 5"):
        read_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(CorruptBatch, match="longer than 10"):
        read_varlong(b"\x80" * 10 + b"\x00", 0)


def test_a_varint_out_of_range_is_corrupt():
    with pytest.raises(CorruptBatch, match="32 bits"):
        read_varint(b"\xff\xff\xff\xff\x1f", 0)
    with pytest.raises(CorruptBatch, match="64 bits"):
        read_varlong(b"\xff" * 9 + b"\x03", 0)
