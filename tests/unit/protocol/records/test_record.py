import pytest

from oncelog_protocol.records.batch import CRC_AT, HEADER, LOG_OVERHEAD, TIMESTAMP_TYPE_BIT, CorruptBatch, RecordBatch
from oncelog_protocol.records.builder import build_batch, encode_record
from oncelog_protocol.records.compression import Compression, compress
from oncelog_protocol.records.record import Record, read_records

NOW = 1_700_000_000_000


def batch_of(payload: bytes, count: int, last_offset_delta: int | None = None, attributes: int = 0) -> RecordBatch:
    """Return a batch with these bytes as its records, valid or not."""
    last = count - 1 if last_offset_delta is None else last_offset_delta
    header = HEADER.pack(
        100, HEADER.size - LOG_OVERHEAD + len(payload), 0, 2, 0, attributes, last, NOW, NOW + 9, -1, -1, -1, count
    )
    return RecordBatch(header + payload)


def test_a_hand_written_record_is_read():
    payload = bytes.fromhex("24 00 05 02 04 6b31 06 616263 02 02 68 04 7878".replace(" ", "")) + b""
    payload = bytes([2 * (len(payload) - 1)]) + payload[1:]
    assert list(read_records(batch_of(payload, 1, 1))) == [Record(101, NOW - 3, b"k1", b"abc", [("h", b"xx")])]


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 65, 120, 127, 128, 8190, 8191, 8192, 20000])
def test_records_with_lengths_around_each_varint_size_are_read(size):
    record = Record(0, NOW, b"k" * size, b"v" * size, [("h" * size, b"w" * size)])
    assert list(read_records(RecordBatch(build_batch([record])))) == [record]


def test_nulls_are_not_empty():
    records = [
        Record(0, NOW, None, None, []),
        Record(1, NOW, b"", b"", [("", None), ("", b"")]),
        Record(2, NOW, b"k", None, [("h", None)]),
    ]
    assert list(read_records(RecordBatch(build_batch(records)))) == records


@pytest.mark.parametrize("delta", [0, 1, 63, 64, 10_000, -1, -64, -65, 2**40, -(2**40)])
def test_timestamps_before_and_after_the_first_are_read(delta):
    records = [Record(0, NOW, None, b"a", []), Record(1, NOW + delta, None, b"b", [])]
    batch = RecordBatch(build_batch(records))
    assert batch.base_timestamp == NOW
    assert batch.max_timestamp == max(NOW, NOW + delta)
    assert list(read_records(batch)) == records


def test_log_append_time_is_the_time_of_every_record():
    raw = build_batch([Record(0, NOW, None, b"a", []), Record(1, NOW + 5, None, b"b", [])])
    raw[22] |= TIMESTAMP_TYPE_BIT
    assert [record.timestamp for record in read_records(RecordBatch(raw))] == [NOW + 5, NOW + 5]


def test_log_append_time_zero_is_a_time():
    raw = build_batch([Record(0, -5, None, b"a", [])])
    raw[22] |= TIMESTAMP_TYPE_BIT
    raw[35:43] = bytes(8)
    assert [record.timestamp for record in read_records(RecordBatch(raw))] == [0]


def test_many_records_have_consecutive_offsets():
    raw = build_batch([Record(0, NOW, None, b"v", [])] * 9000, base_offset=2**40)
    assert [record.offset for record in read_records(RecordBatch(raw))] == list(range(2**40, 2**40 + 9000))


def test_a_compacted_batch_keeps_its_offset_gaps():
    payload = encode_record(3, 0, b"k", b"v") + encode_record(7, 0, b"k", b"v")
    assert [record.offset for record in read_records(batch_of(payload, 2, 9))] == [103, 107]


def test_a_batch_emptied_by_the_cleaner_has_no_records():
    assert list(read_records(batch_of(b"", 0, 9))) == []


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_compressed_records_are_read(codec):
    payload = compress(codec, b"".join(encode_record(i, i, b"k", b"v" * 50) for i in range(100)))
    assert len(list(read_records(batch_of(payload, 100, attributes=codec)))) == 100


GOOD = encode_record(0, 0, b"k", b"v")


@pytest.mark.parametrize(
    ("payload", "count", "last_offset_delta"),
    [
        pytest.param(GOOD, 2, 1, id="a record too few"),
        pytest.param(GOOD + encode_record(1, 0, b"k", b"v"), 1, 1, id="a record too many"),
        pytest.param(GOOD * 2, 2, 1, id="the same offset twice"),
        pytest.param(encode_record(1, 0, b"k", b"v") + GOOD, 2, 1, id="offsets going down"),
        pytest.param(encode_record(5, 0, b"k", b"v"), 1, 4, id="an offset beyond the last"),
        pytest.param(encode_record(-1, 0, b"k", b"v"), 1, 0, id="a negative offset delta"),
        pytest.param(GOOD, 1, -1, id="more records than offsets"),
        pytest.param(GOOD, -1, 0, id="a negative count"),
        pytest.param(GOOD, 2**31 - 1, 2**31 - 1, id="a count beyond the data"),
        pytest.param(GOOD[:-1], 1, 0, id="cut"),
        pytest.param(b"\x03" + GOOD[1:], 1, 0, id="a negative length"),
        pytest.param(b"\x83\x00" + GOOD[1:], 1, 0, id="a negative length in two bytes"),
        pytest.param(b"\x12" + GOOD[1:] + b"\x00", 1, 0, id="a length one too large"),
        pytest.param(b"\x0e" + GOOD[1:], 1, 0, id="a length one too small"),
        pytest.param(b"\x0e\x00\x00\x00\x03kv\x00", 1, 0, id="a negative key length"),
        pytest.param(b"\x0e\x00\x00\x00\x7ekv\x00", 1, 0, id="a key length beyond the data"),
        pytest.param(b"\x0e\x00\x00\x00\x01\xfe\x7f\x00", 1, 0, id="a value length beyond the data"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x02\x7e", 1, 0, id="a header key beyond the data"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x03\x00", 1, 0, id="a negative header count"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x02\xff", 1, 0, id="a header key that is not UTF-8, cut"),
        pytest.param(b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", 1, 0, id="a header key that is not UTF-8"),
        pytest.param(b"\x12\x00\x00\x00\x01\x01\x02\x00\x03\x00", 1, 0, id="a negative header value length"),
        pytest.param(b"\x12\x00\x00\x00\x01\x01\x02\x00\x08\x00", 1, 0, id="a header value beyond the data"),
        pytest.param(b"\x16\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f\x00", 1, 0, id="two thousand million headers"),
    ],
)
def test_corrupt_records_are_refused(payload, count, last_offset_delta):
    with pytest.raises(CorruptBatch):
        list(read_records(batch_of(payload, count, last_offset_delta)))


def test_good_records_come_before_the_bad_one():
    records = read_records(batch_of(GOOD + b"\xff" * len(GOOD), 2))
    assert next(records).value == b"v"
    with pytest.raises(CorruptBatch):
        next(records)


def test_a_batch_that_decompresses_to_too_much_is_corrupt():
    payload = compress(Compression.ZSTD, encode_record(0, 0, None, bytes(100_000)))
    batch = batch_of(payload, 1, attributes=Compression.ZSTD)
    assert len(list(read_records(batch))) == 1
    with pytest.raises(CorruptBatch):
        list(read_records(batch, max_decompressed_bytes=100_000))


def test_the_crc_field_is_not_looked_at_here():
    raw = build_batch([Record(0, NOW, None, b"a", [])])
    raw[CRC_AT] ^= 0xFF
    batch = RecordBatch(raw)
    assert not batch.crc_is_valid()
    assert len(list(read_records(batch))) == 1
