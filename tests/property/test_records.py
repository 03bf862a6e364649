"""Any records survive encoding as a batch. Any bytes decode to records or raise CorruptBatch."""

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog_protocol.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, CorruptBatch, RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.columns import records_data
from oncelog_protocol.records.compression import Compression, decompress
from oncelog_protocol.records.control import parse_marker, read_marker
from oncelog_protocol.records.record import Record, read_records
from oncelog_protocol.records.record_scan import RecordFacts, records_end, scan_facts
from oncelog_protocol.records.varint import encode_varint, encode_varlong, read_varint, read_varlong

nullable_bytes = st.none() | st.binary(max_size=200)
timestamps = st.integers(-1, 2**41)
headers = st.lists(st.tuples(st.text(max_size=10), nullable_bytes), max_size=4)
record_lists = st.lists(
    st.builds(Record, st.just(0), timestamps, nullable_bytes, nullable_bytes, headers), min_size=1, max_size=20
)
LIMIT = 1 << 16


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_varint_is_read_back(value):
    encoded = encode_varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varlong_is_read_back(value):
    encoded = encode_varlong(value)
    assert read_varlong(encoded, 0) == (value, len(encoded))


@given(record_lists, st.sampled_from(Compression), st.integers(0, 2**62))
def test_a_batch_is_read_back(records, codec, base_offset):
    batch = RecordBatch(build_batch(records, compression=codec, base_offset=base_offset))
    assert batch.crc_is_valid()
    expected = [Record(base_offset + delta, r.timestamp, r.key, r.value, r.headers) for delta, r in enumerate(records)]
    assert list(read_records(batch)) == expected
    found = read_facts(batch, max_decompressed_bytes=1 << 20)
    assert [delta for facts in found for delta in facts.offset_deltas] == list(range(len(records)))
    times = [batch.base_timestamp + delta for facts in found for delta in facts.timestamp_deltas]
    assert times == [record.timestamp for record in records]
    keyless = [delta for facts in found for delta in facts.keyless]
    assert keyless == [delta for delta, record in enumerate(records) if record.key is None]
    if codec is Compression.NONE:
        assert records_end(batch.buffer, HEADER_SIZE, len(records)) == batch.size


@given(st.sampled_from(Compression), st.binary(max_size=300))
def test_decompressing_any_bytes_fails_cleanly(codec, data):
    try:
        assert len(decompress(codec, data, max_bytes=LIMIT)) <= LIMIT
    except CorruptBatch:
        pass


@given(st.binary(max_size=120), st.integers(0, 30), st.integers(0, 30), st.integers(0, 0x7F))
def test_any_bytes_as_records_fail_cleanly(payload, count, last_offset_delta, attributes):
    header = HEADER.pack(
        0, HEADER_SIZE - LOG_OVERHEAD + len(payload), 0, 2, 0, attributes, last_offset_delta, 0, 0, -1, -1, -1, count
    )
    read_everything(header + payload)


@settings(deadline=None)  # a mutated batch may decompress to any size up to the limit
@given(record_lists, st.sampled_from(Compression), st.data())
def test_mutated_batches_fail_cleanly(records, codec, data):
    raw = build_batch(records, compression=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(HEADER_SIZE - 40, len(raw) - 1))] = data.draw(st.integers(0, 255))
    read_everything(bytes(raw))


@given(record_lists, st.data())
def test_truncated_records_fail_cleanly(records, data):
    raw = build_batch(records)
    cut = data.draw(st.integers(1, len(raw) - HEADER_SIZE))
    raw = raw[:-cut]
    raw[8:12] = (len(raw) - LOG_OVERHEAD).to_bytes(4, "big")
    try:
        read = list(read_records(RecordBatch(raw)))
    except CorruptBatch:
        return
    raise AssertionError(f"{len(read)} of {len(records)} records read from a cut batch")


@given(nullable_bytes, nullable_bytes)
def test_any_bytes_as_a_marker_fail_cleanly(key, value):
    try:
        marker = parse_marker(Record(0, 0, key, value, []))
    except CorruptBatch:
        return
    assert marker is None or marker.coordinator_epoch == int.from_bytes(value[2:6], "big", signed=True)


def read_facts(batch: RecordBatch, *, max_decompressed_bytes: int) -> list[RecordFacts]:
    return list(scan_facts(batch, records_data(batch, max_decompressed_bytes)))


def read_everything(raw: bytes) -> None:
    for read in (read_records, read_facts, read_marker):
        try:
            batch = RecordBatch(raw)
            if read is read_marker:
                if batch.is_control:
                    read_marker(batch)
                continue
            result = read(batch, max_decompressed_bytes=LIMIT)
            if read is read_records:
                assert len(list(result)) == batch.records_count
        except CorruptBatch:
            pass
