import pytest

from oncelog_protocol.records.batch import ATTRIBUTES_AT, MAX_TIMESTAMP_AT, TIMESTAMP_TYPE_BIT, RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.columns import MAX_DECOMPRESSED_BYTES, records_data
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record, read_records
from oncelog_protocol.records.record_scan import RecordSpan, scan_spans
from oncelog_protocol.records.rewrite import empty_batch, rewrite_batch

NOW = 1_700_000_000_000
RECORDS = [
    Record(100, NOW, b"a", b"1" * 50, [("h", b"x")]),
    Record(101, NOW + 500, b"b", None, []),
    Record(102, NOW + 20, b"c", b"3", []),
]


def batch_of(records: list[Record], codec: Compression = Compression.NONE) -> RecordBatch:
    return RecordBatch(
        build_batch(
            records,
            compression=codec,
            base_offset=100,
            producer_id=7,
            producer_epoch=2,
            base_sequence=40,
            transactional=True,
            partition_leader_epoch=5,
        )
    )


def spans_of(batch: RecordBatch) -> tuple[bytes, list[RecordSpan]]:
    data = records_data(batch, MAX_DECOMPRESSED_BYTES)
    return data, [span for spans in scan_spans(batch, data) for span in spans]


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("horizon", [None, NOW + 10**9, 1])
@pytest.mark.parametrize("keep", [[0], [1], [0, 2], [0, 1, 2]])
def test_kept_records_stay_what_they_were(codec, horizon, keep):
    batch = batch_of(RECORDS, codec)
    data, spans = spans_of(batch)
    made = RecordBatch(rewrite_batch(batch, data, [spans[i] for i in keep], delete_horizon_ms=horizon))
    assert made.crc_is_valid()
    assert list(read_records(made)) == [RECORDS[i] for i in keep]
    assert (made.base_offset, made.last_offset, made.records_count) == (100, 102, len(keep))
    assert (made.producer_id, made.producer_epoch, made.base_sequence) == (7, 2, 40)
    assert (made.compression, made.is_transactional, made.partition_leader_epoch) == (codec, True, 5)
    assert made.delete_horizon_ms == horizon
    assert made.max_timestamp == max(RECORDS[i].timestamp for i in keep)


def test_a_horizon_survives_a_second_rewrite():
    batch = batch_of(RECORDS)
    first = RecordBatch(rewrite_batch(batch, *spans_of(batch), delete_horizon_ms=NOW + 5))
    data, spans = spans_of(first)
    second = RecordBatch(rewrite_batch(first, data, spans[1:], delete_horizon_ms=None))
    assert second.delete_horizon_ms == NOW + 5
    assert list(read_records(second)) == RECORDS[1:]


def test_append_time_is_kept():
    raw = build_batch(RECORDS, base_offset=100)
    raw[ATTRIBUTES_AT + 1] |= TIMESTAMP_TYPE_BIT
    raw[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = (NOW + 9999).to_bytes(8, "big")
    batch = RecordBatch(raw)
    data, spans = spans_of(batch)
    made = RecordBatch(rewrite_batch(batch, data, spans[:1], delete_horizon_ms=None))
    assert [record.timestamp for record in read_records(made)] == [NOW + 9999]


@pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63)])
def test_timestamps_that_are_no_times_cost_the_horizon_only(timestamp):
    batch = batch_of([Record(100, timestamp, b"a", None, [])])
    made = RecordBatch(rewrite_batch(batch, *spans_of(batch), delete_horizon_ms=NOW))
    assert made.crc_is_valid()
    assert [record.timestamp for record in read_records(made)] == [timestamp]


@pytest.mark.parametrize("codec", Compression)
def test_an_empty_batch_covers_the_same_offsets_and_sequences(codec):
    batch = batch_of(RECORDS, codec)
    made = RecordBatch(empty_batch(batch))
    assert made.crc_is_valid()
    assert list(read_records(made)) == []
    assert (made.base_offset, made.last_offset, made.records_count, made.size) == (100, 102, 0, 61)
    assert (made.producer_id, made.producer_epoch, made.base_sequence) == (7, 2, 40)
    assert made.max_timestamp == batch.max_timestamp
    assert made.delete_horizon_ms is None
    assert bytes(empty_batch(made)) == bytes(made.view)
