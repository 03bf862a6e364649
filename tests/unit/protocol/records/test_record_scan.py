import pytest

from oncelog_protocol.records.batch import HEADER_SIZE, CorruptBatch, RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.columns import MAX_DECOMPRESSED_BYTES, records_data
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record, read_records
from oncelog_protocol.records.record_scan import SCAN_CHUNK, records_end, scan_facts, scan_keys, scan_spans

NOW = 1_700_000_000_000


def keys_of(batch: RecordBatch) -> list[tuple[int, bytes | None]]:
    pairs = []
    for deltas, keys in scan_keys(batch, records_data(batch, MAX_DECOMPRESSED_BYTES)):
        assert len(deltas) <= SCAN_CHUNK
        pairs += list(zip(deltas, keys, strict=True))
    return pairs


@pytest.mark.parametrize("count", [1, SCAN_CHUNK - 1, SCAN_CHUNK, SCAN_CHUNK + 1, 9000])
def test_keys_and_offset_deltas_are_scanned(count):
    records = [Record(0, NOW + i, b"k%d" % i, b"v", []) for i in range(count)]
    batch = RecordBatch(build_batch(records))
    assert keys_of(batch) == [(i, b"k%d" % i) for i in range(count)]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 20000])
def test_keys_around_each_varint_size_are_scanned(size):
    batch = RecordBatch(build_batch([Record(0, NOW, b"k" * size, b"v" * 70, []), Record(0, NOW, None, None, [])]))
    assert keys_of(batch) == [(0, b"k" * size), (1, None)]


@pytest.mark.parametrize("codec", Compression)
def test_spans_say_what_the_records_are(codec):
    records = [
        Record(7, NOW, b"a", b"1", []),
        Record(8, NOW - 70, None, b"", [("h", b"x")]),
        Record(9, NOW + 9000, b"b" * 100, None, [("h", None)]),
    ]
    batch = RecordBatch(build_batch(records, compression=codec, base_offset=7))
    data = records_data(batch, MAX_DECOMPRESSED_BYTES)
    (spans,) = scan_spans(batch, data)
    assert [(span.offset_delta, span.timestamp_delta, span.key, span.is_tombstone) for span in spans] == [
        (0, 0, b"a", False),
        (1, -70, None, False),
        (2, 9000, b"b" * 100, True),
    ]
    assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
    assert spans[-1].end == len(data)
    assert list(read_records(batch)) == records


@pytest.mark.parametrize("scan", [scan_keys, scan_spans, scan_facts])
def test_cut_records_are_corrupt(scan):
    batch = RecordBatch(build_batch([Record(0, NOW, b"key", b"value", [])] * 3))
    data = records_data(batch, MAX_DECOMPRESSED_BYTES)
    for size in range(len(data)):
        with pytest.raises(CorruptBatch):
            list(scan(batch, data[:size]))


@pytest.mark.parametrize("scan", [scan_keys, scan_spans, scan_facts])
def test_offset_deltas_must_grow_within_the_batch(scan):
    batch = RecordBatch(build_batch([Record(0, NOW, b"k", b"v", [])] * 2))
    data = records_data(batch, MAX_DECOMPRESSED_BYTES)
    half = len(data) // 2
    with pytest.raises(CorruptBatch):
        list(scan(batch, data[:half] * 2))
    batch.last_offset_delta = 0
    with pytest.raises(CorruptBatch):
        list(scan(batch, data))


@pytest.mark.parametrize("sizes", [[0], [5] * 100, [200] * 10_000, list(range(200)), [9000, 1, 9000, *[70] * 50, 3]])
def test_records_end_where_their_lengths_say(sizes):
    raw = build_batch([Record(0, NOW + i, None, b"v" * size, []) for i, size in enumerate(sizes)])
    assert records_end(raw, HEADER_SIZE, len(sizes)) == len(raw)
    assert records_end(memoryview(raw), HEADER_SIZE, len(sizes)) == len(raw)
    before_the_last = records_end(raw, HEADER_SIZE, len(sizes) - 1)
    assert records_end(raw, before_the_last, 1) == len(raw)
    for wrong in (raw[:-1], raw[: before_the_last + 1]):
        with pytest.raises(CorruptBatch):
            records_end(wrong, HEADER_SIZE, len(sizes))


def test_a_negative_length_is_corrupt():
    with pytest.raises(CorruptBatch):
        records_end(b"\x01" * 9, 0, 1)
