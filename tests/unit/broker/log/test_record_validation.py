"""The leader validates a producer's batch, and how long that delays other clients is limited."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.storage import NOW, make_batch, open_log

from oncelog_broker.log.config import FULL, HEADER, LogConfig
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.log.record_validation import MAX_RECORDS_NAMED, RecordsRefused, records_check
from oncelog_broker.log.validation import FRAMES_WALKED, ValidationLimits
from oncelog_broker.runtime.steps import Steps, run_steps
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import CRC_AT, HEADER_SIZE, RecordBatch, batch_crc
from oncelog_protocol.records.compression import Compression, compress

HOUR = 3600_000
COMPACT = frozenset({"compact"})


def batch_of(payload: bytes, count: int, codec: Compression = Compression.NONE) -> bytearray:
    """Return a batch with a correct header and CRC whose records are the bytes of `payload`."""
    batch = make_batch()[:HEADER_SIZE] + payload
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, CRC_AT, batch_crc(batch))
    return batch


RECORD = bytes(make_batch(b"value", timestamp=NOW)[HEADER_SIZE:])
SECOND = RECORD[:3] + b"\x02" + RECORD[4:]
LONGER_VALUE_THAN_RECORD = RECORD.replace(b"\x0avalue", b"\x0cvalue")
WRONG_FRAMES = {
    "garbage": (b"\xff" * 40, 1),
    "nothing, but said to be one": (b"", 1),
    "bytes to spare": (RECORD + b"\0", 1),
    "cut": (RECORD[:-1], 1),
    "more than there are": (RECORD, 3),
    "fewer than there are": (RECORD * 3, 2),
    "two thousand million": (RECORD, 2**31 - 1),
}
WRONG_FIELDS = {
    "a value that is longer than its record": (LONGER_VALUE_THAN_RECORD, 1),
    "the same offset twice": (RECORD + RECORD, 2),
}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    logs = []

    def open_with(**config: Any) -> PartitionLog:
        logs.append(open_log(tmp_path / f"orders-{len(logs)}", LogConfig(**config)))
        return logs[-1]

    yield open_with
    for log in logs:
        log.close()


def refusal(log: PartitionLog, batch: bytearray) -> KafkaError:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch, leader_epoch=0)
    assert log.log_end_offset == end
    return caught.value


@pytest.mark.parametrize("wrong", WRONG_FRAMES)
def test_records_of_an_uncompressed_batch_must_fill_it(opened: Any, wrong: str) -> None:
    assert refusal(opened(), batch_of(*WRONG_FRAMES[wrong])).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("wrong", WRONG_FIELDS | WRONG_FRAMES)
@pytest.mark.parametrize("codec", Compression)
def test_full_validation_walks_every_field(opened: Any, wrong: str, codec: Compression) -> None:
    payload, count = (WRONG_FIELDS | WRONG_FRAMES)[wrong]
    batch = batch_of(compress(codec, payload), count, codec)
    assert refusal(opened(record_validation=FULL), batch).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_full_validation_decompresses(opened: Any, codec: Compression) -> None:
    log = opened(record_validation=FULL)
    assert refusal(log, batch_of(b"no such data", 1, codec)).code is ErrorCode.INVALID_RECORD
    log.append_as_leader(batch_of(compress(codec, RECORD + SECOND), 2, codec), leader_epoch=0)
    assert log.log_end_offset == 2


def test_an_impossible_compression_ratio_is_refused(opened: Any) -> None:
    batch = batch_of(compress(Compression.LZ4, RECORD), 2**31 - 1, Compression.LZ4)
    assert refusal(opened(record_validation=HEADER), batch).code is ErrorCode.INVALID_RECORD


def test_only_the_batch_header_is_validated_if_asked_for(opened: Any) -> None:
    log = opened(record_validation=HEADER)
    log.append_as_leader(batch_of(b"\xff" * 40, 1), leader_epoch=0)
    assert log.log_end_offset == 1


@pytest.mark.parametrize("codec", Compression)
def test_a_compacted_topic_names_the_records_without_a_key(opened: Any, codec: Compression) -> None:
    log = opened(cleanup_policy=COMPACT)
    keyless = RECORD.replace(b"\x02k", b"\x01").replace(RECORD[:1], bytes((RECORD[0] - 2,)), 1)
    second = keyless[:3] + b"\x02" + keyless[4:]
    third = RECORD[:3] + b"\x04" + RECORD[4:]
    error = refusal(log, batch_of(compress(codec, RECORD + second + third), 3, codec))
    assert isinstance(error, RecordsRefused)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [record.place for record in error.records] == [1]
    assert "without a key" in error.records[0].message


def test_a_bounded_number_of_bad_records_is_named(opened: Any) -> None:
    values = [b"v"] * (MAX_RECORDS_NAMED + 500)
    error = refusal(opened(cleanup_policy=COMPACT), make_batch(*values, key=None))
    assert isinstance(error, RecordsRefused)
    assert [record.place for record in error.records] == list(range(MAX_RECORDS_NAMED))


@pytest.mark.parametrize("validation", ["frames", FULL])
def test_records_with_a_wrong_timestamp_are_named(opened: Any, validation: str) -> None:
    log = opened(record_validation=validation)
    times = [NOW, NOW + 2 * HOUR, NOW, NOW + 3 * HOUR]
    error = refusal(log, make_batch(*[b"v"] * 4, timestamps=times))
    assert isinstance(error, RecordsRefused)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [record.place for record in error.records] == [1, 3]


def test_full_validation_believes_the_records_about_their_largest_timestamp(opened: Any) -> None:
    log = opened(record_validation=FULL)
    batch = make_batch(b"a", b"b", timestamps=[NOW - 5, NOW - 1])
    struct.pack_into(">q", batch, 35, 0)
    struct.pack_into(">I", batch, CRC_AT, batch_crc(batch))
    log.append_as_leader(batch, leader_epoch=0)
    stored = RecordBatch(log.reader.read(0, 1000, upper_bound=2, min_one_batch=True))
    assert stored.max_timestamp == NOW - 1
    assert stored.crc_is_valid()
    found = run_steps(log.reader.max_timestamp_offset())
    assert found is not None
    assert (found.offset, found.timestamp) == (1, NOW - 1)


def test_a_batch_too_large_to_decompress_is_refused(opened: Any) -> None:
    """After MESSAGE_TOO_LARGE a client splits the batch and does not send it again unchanged."""
    log = opened(record_validation=FULL, message_max_decompressed_bytes=1 << 20)
    payload = compress(Compression.ZSTD, RECORD * (2_000_000 // len(RECORD)))
    error = refusal(log, batch_of(payload, 2_000_000 // len(RECORD), Compression.ZSTD))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "message.max.decompressed.bytes" in error.message


def steps_of(batch: bytearray, **config: Any) -> Steps[None]:
    return records_check(memoryview(batch), ValidationLimits.of(LogConfig(**config)), NOW)


def test_ten_million_records_in_six_kilobytes_are_unpacked_elsewhere_and_walked_with_pauses() -> None:
    count = 300_000
    payload = compress(Compression.ZSTD, b"\x0c\x00\x00\x00\x01\x01\x00" * count)
    steps = steps_of(batch_of(payload, count, Compression.ZSTD), cleanup_policy=COMPACT)
    job = next(steps)
    assert callable(job), "decompressing is a job for a thread"
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        steps.send(job())


def test_only_the_first_records_of_a_large_batch_are_walked(opened: Any) -> None:
    log = opened()
    good = bytes(make_batch(*[b"v"] * (FRAMES_WALKED + 1))[HEADER_SIZE:])
    log.append_as_leader(batch_of(good + b"\0", FRAMES_WALKED + 1), leader_epoch=0)
    assert refusal(log, batch_of(b"\xff" * 20 + good, FRAMES_WALKED + 3)).code is ErrorCode.INVALID_RECORD
    full = opened(record_validation=FULL)
    assert refusal(full, batch_of(good + b"\0", FRAMES_WALKED + 1)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("config", "walks"), [({}, False), ({"record_validation": FULL}, True), ({"cleanup_policy": COMPACT}, True)]
)
def test_batches_of_ordinary_logs_are_not_walked(opened: Any, config: dict[str, Any], walks: bool) -> None:
    assert opened(**config).walks_records is walks
