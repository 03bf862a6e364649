"""A leader refuses invalid appends without a change of the log."""

import dataclasses
import struct

import pytest
from tests.support.storage import NOW, make_batch, open_log

from oncelog_broker.log.config import LOG_APPEND_TIME, LogConfig
from oncelog_broker.log.validation import AppendOrigin
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.records.batch import CRC_AT, batch_crc
from oncelog_protocol.records.compression import Compression

HOUR = 3600_000


def patched(layout, at, value, batch=None):
    """Return a batch with one changed header field and a correct CRC."""
    batch = make_batch(b"a", b"b") if batch is None else batch
    struct.pack_into(layout, batch, at, value)
    struct.pack_into(">I", batch, CRC_AT, batch_crc(batch))
    return batch


def damaged(at):
    batch = make_batch(b"a", b"b")
    batch[at] ^= 0x10
    return batch


REFUSED = {
    "nothing": (bytearray(), ErrorCode.CORRUPT_MESSAGE),
    "less than a header": (make_batch()[:60], ErrorCode.CORRUPT_MESSAGE),
    "cut": (make_batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
    "length beyond the data": (patched(">i", 8, 2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
    "length below a header": (patched(">i", 8, 48), ErrorCode.CORRUPT_MESSAGE),
    "negative length": (patched(">i", 8, -1), ErrorCode.CORRUPT_MESSAGE),
    "bytes behind the batch": (make_batch() + b"x", ErrorCode.INVALID_RECORD),
    "two batches": (make_batch() + make_batch(), ErrorCode.INVALID_RECORD),
    "flipped bit in the records": (damaged(-1), ErrorCode.CORRUPT_MESSAGE),
    "flipped bit in the attributes": (damaged(22), ErrorCode.CORRUPT_MESSAGE),
    "flipped bit in the crc": (damaged(CRC_AT), ErrorCode.CORRUPT_MESSAGE),
    "message format v1": (patched(">b", 16, 1), ErrorCode.INVALID_RECORD),
    "no records": (patched(">i", 57, 0), ErrorCode.INVALID_RECORD),
    "negative records": (patched(">i", 57, -1), ErrorCode.INVALID_RECORD),
    "more offsets than records": (patched(">i", 23, 2), ErrorCode.INVALID_RECORD),
    "negative offset delta": (patched(">i", 23, -1), ErrorCode.INVALID_RECORD),
    "base offset": (patched(">q", 0, 5), ErrorCode.INVALID_RECORD),
    "control batch": (patched(">h", 21, 0x20), ErrorCode.INVALID_RECORD),
    "unknown compression": (patched(">h", 21, 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "producer without sequence": (patched(">q", 43, 7), ErrorCode.INVALID_RECORD),
    "log append time": (patched(">h", 21, 0x08), ErrorCode.INVALID_TIMESTAMP),
    "from the future": (make_batch(timestamp=NOW + HOUR + 1), ErrorCode.INVALID_TIMESTAMP),
    "larger than max.message.bytes": (make_batch(b"x" * 1000), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.fixture
def log(tmp_path):
    opened = open_log(tmp_path / "orders-0", LogConfig(max_message_bytes=1000))
    yield opened
    opened.close()


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_batch_changes_nothing(log, what):
    batch, code = REFUSED[what]
    log.append_as_leader(make_batch(), leader_epoch=0)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(bytearray(batch), leader_epoch=0)
    assert caught.value.code is code
    assert (log.log_end_offset, log.size_bytes, log.is_offline) == (1, len(make_batch()), False)


def test_a_batch_at_the_limits_is_accepted(log):
    log.append_as_leader(make_batch(timestamp=NOW + HOUR), leader_epoch=0)
    overhead = len(make_batch(b"x" * 900)) - 900
    log.append_as_leader(make_batch(b"x" * (1000 - overhead)), leader_epoch=0)
    assert log.log_end_offset == 2


def test_a_timestamp_older_than_the_limit_is_refused(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig(message_timestamp_before_max_ms=HOUR))
    log.append_as_leader(make_batch(timestamp=NOW - HOUR), leader_epoch=0)
    log.append_as_leader(make_batch(timestamp=-1), leader_epoch=0)
    with pytest.raises(KafkaError, match="INVALID_TIMESTAMP"):
        log.append_as_leader(make_batch(timestamp=NOW - HOUR - 1), leader_epoch=0)
    log.close()


def test_timestamps_do_not_matter_with_log_append_time(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig(message_timestamp_type=LOG_APPEND_TIME))
    assert log.append_as_leader(make_batch(timestamp=NOW + 99 * HOUR), leader_epoch=0) == (0, NOW)
    log.close()


@pytest.mark.parametrize("compression", list(Compression))
def test_a_compacted_topic_refuses_records_without_key(tmp_path, compression):
    log = open_log(tmp_path / "orders-0", LogConfig(cleanup_policy=frozenset({"compact"})))
    log.append_as_leader(make_batch(b"a", b"b", compression=compression), leader_epoch=0)
    with pytest.raises(KafkaError, match=r"INVALID_RECORD.*key"):
        log.append_as_leader(make_batch(b"a", key=None, compression=compression), leader_epoch=0)
    garbage = patched(">h", 21, Compression.GZIP)
    with pytest.raises(KafkaError, match="INVALID_RECORD"):  # not retriable, because a retry would be as invalid
        log.append_as_leader(garbage, leader_epoch=0)
    assert log.log_end_offset == 2
    log.close()


def test_a_batch_larger_than_a_segment_is_refused(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig(segment_bytes=200))
    with pytest.raises(KafkaError, match="RECORD_LIST_TOO_LARGE"):
        log.append_as_leader(make_batch(b"x" * 200), leader_epoch=0)
    with pytest.raises(KafkaError, match="RECORD_LIST_TOO_LARGE"):
        log.append_as_leader(make_batch() + make_batch(), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    log.close()


def test_coordinator_batches_are_checked_for_damage_and_size_only(tmp_path):
    log = open_log(tmp_path / "orders-0", LogConfig(max_message_bytes=1000))
    origin = AppendOrigin.COORDINATOR
    for batch, code in [
        (make_batch() + make_batch()[:-1], "CORRUPT_MESSAGE"),
        (make_batch() + damaged(-1), "CORRUPT_MESSAGE"),
        (make_batch() + make_batch(b"x" * 1000), "MESSAGE_TOO_LARGE"),
        (make_batch(b"x" * 1000), "MESSAGE_TOO_LARGE"),
    ]:
        with pytest.raises(KafkaError, match=code):
            log.append_as_leader(batch, leader_epoch=0, origin=origin)
    assert log.log_end_offset == 0
    log.close()


def test_the_log_settings_are_read_from_kafka_keys():
    config = LogConfig.from_values(
        {"segment.bytes": 5, "cleanup.policy": "compact, delete", "compression.type": "zstd", "retention.ms": -1}
    )
    assert config == dataclasses.replace(
        LogConfig(),
        segment_bytes=5,
        cleanup_policy=frozenset({"compact", "delete"}),
        compression_type="zstd",
        retention_ms=-1,
    )
    assert config.is_compacted
    assert LogConfig.from_values({"cleanup.policy": ["compact"]}).cleanup_policy == {"compact"}
