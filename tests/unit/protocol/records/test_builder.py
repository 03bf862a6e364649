import pytest

from oncelog_protocol.records.batch import HEADER_SIZE, RecordBatch
from oncelog_protocol.records.builder import (
    RecordBatchBuilder,
    build_batch,
    encode_record,
    record_size_upper_bound,
    single_record_batch,
)
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.packing import Packed
from oncelog_protocol.records.record import Record, read_records

NOW = 1_700_000_000_000


def test_a_batch_has_the_known_bytes():
    assert encode_record(1, 0, b"k", None, [("h", b"")]).hex() == "14000002026b0102026800"


def test_append_returns_offset_deltas_until_full():
    record_size = len(encode_record(0, 0, b"k", b"v" * 20))
    builder = RecordBatchBuilder(size_limit=HEADER_SIZE + 3 * record_size)
    assert [builder.append(NOW, b"k", b"v" * 20) for _ in range(5)] == [0, 1, 2, None, None]
    assert builder.records_count == 3
    assert builder.size == HEADER_SIZE + 3 * record_size
    assert builder.append(NOW, None, None) is None


def test_a_refused_record_leaves_no_trace():
    builder = RecordBatchBuilder(size_limit=HEADER_SIZE + 40)
    builder.append(NOW, None, b"a")
    assert builder.append(NOW + 99, None, b"b" * 100) is None
    assert builder.append(NOW + 1, None, b"c") == 1
    builder.close()
    batch = RecordBatch(builder.build())
    assert (batch.records_count, batch.max_timestamp) == (2, NOW + 1)
    assert [record.value for record in read_records(batch)] == [b"a", b"c"]


def test_the_first_record_may_exceed_the_limit():
    builder = RecordBatchBuilder(size_limit=10)
    assert builder.append(NOW, None, b"v" * 1000) == 0
    assert builder.append(NOW, None, b"") is None


@pytest.mark.parametrize("codec", Compression)
def test_a_stamped_batch_has_its_header_fields(codec):
    builder = RecordBatchBuilder(size_limit=10_000)
    builder.append(NOW, b"k", b"v" * 100)
    builder.append(NOW - 5, b"k", b"v" * 100)
    builder.append(NOW + 7, b"k", b"v" * 100)
    builder.close(codec)
    raw = builder.build(
        producer_id=4000, producer_epoch=7, base_sequence=2**31 - 1, transactional=True, base_offset=50,
        partition_leader_epoch=3,
    )  # fmt: skip
    batch = RecordBatch(raw)
    assert batch.size == len(raw) == builder.size
    assert batch.crc_is_valid()
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (50, 52, 3)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 7)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4000, 7, 2**31 - 1)
    assert batch.compression == codec
    assert batch.is_transactional
    assert not batch.is_control
    assert not batch.is_log_append_time
    assert [record.timestamp for record in read_records(batch)] == [NOW, NOW - 5, NOW + 7]


def test_a_new_stamp_leaves_the_buffer_handed_out_alone():
    builder = RecordBatchBuilder(size_limit=10_000)
    builder.append(NOW, b"k", b"v")
    builder.close(Compression.LZ4)
    first = builder.build(producer_id=1, producer_epoch=0, base_sequence=10)
    before = bytes(first)
    second = builder.build(producer_id=1, producer_epoch=1, base_sequence=0)
    third = builder.build(producer_id=2, producer_epoch=0, base_sequence=0)
    assert bytes(first) == before
    assert [RecordBatch(raw).producer_epoch for raw in (first, second, third)] == [0, 1, 0]
    assert all(RecordBatch(raw).crc_is_valid() for raw in (first, second, third))
    assert [record.value for record in read_records(RecordBatch(third))] == [b"v"]


def test_without_a_producer_id_the_stamp_is_empty():
    batch = RecordBatch(build_batch([Record(0, NOW, None, b"v", [])]))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.partition_leader_epoch == -1


def test_order_of_calls_is_asserted():
    builder = RecordBatchBuilder(size_limit=100)
    builder.append(NOW, None, b"v")
    with pytest.raises(AssertionError):
        builder.build()
    builder.close()
    assert builder.is_closed
    with pytest.raises(AssertionError):
        builder.append(NOW, None, b"v")
    with pytest.raises(AssertionError):
        builder.close()


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [(None, None, ()), (b"k" * 9000, b"v" * 70, [("ü" * 100, b"x"), ("h", None)]), (b"", b"", [("", b"")] * 200)],
)
def test_the_size_estimate_is_an_upper_bound(key, value, headers):
    batch = build_batch([Record(0, NOW, key, value, list(headers))])
    assert len(batch) <= record_size_upper_bound(key, value, headers)


def test_every_buffer_type_is_accepted():
    builder = RecordBatchBuilder(size_limit=1000)
    builder.append(NOW, bytearray(b"key"), memoryview(b"value"), [("h", memoryview(b"x"))])
    builder.close()
    (record,) = read_records(RecordBatch(builder.build()))
    assert (record.key, record.value, record.headers) == (b"key", b"value", [("h", b"x")])


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_whole_batch_equals_the_batch_of_its_records(compression):
    values = [b"a", b"b" * 70, b""]
    plain = RecordBatchBuilder(size_limit=1000)
    for value in values:
        plain.append(NOW, None, value)
    records = b"".join(encode_record(offset, 0, None, value) for offset, value in enumerate(values))
    data = bytearray(HEADER_SIZE) + records
    whole = RecordBatchBuilder.whole(Packed(data, [NOW] * len(values), NOW))
    assert whole.size == HEADER_SIZE + len(records)
    for builder in (plain, whole):
        builder.close(compression)
    sent = whole.build(producer_id=1)
    assert sent == plain.build(producer_id=1)
    assert whole.size == len(sent)
    before = bytes(sent)
    assert whole.build(producer_id=2) == plain.build(producer_id=2)
    assert sent == before, "a transport may still be sending the first buffer"


@pytest.mark.parametrize(("key", "value"), [(b"key", b"value"), (None, b"v" * 600), (b"k" * 600, None), (b"", b"")])
@pytest.mark.parametrize("producer", [{}, {"producer_id": 7, "producer_epoch": 3, "transactional": True}])
def test_a_batch_of_a_single_record_has_the_bytes_of_the_builder(key, value, producer):
    built = build_batch([Record(0, 1_700_000_000_000, key, value, [])], **producer)
    assert single_record_batch(1_700_000_000_000, key, value, **producer) == built
