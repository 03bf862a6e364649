"""Files of a log that the tests build byte by byte."""

from pathlib import Path

import pytest

from oncelog_broker.log.segments.offset_index import ENTRY as OFFSET_ENTRY
from oncelog_broker.log.segments.time_index import ENTRY as TIME_ENTRY
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.control import ControlType, EndTransactionMarker, marker_batch
from oncelog_protocol.records.record import Record

BASE = 100


def plain_batch(base_offset: int, *values: bytes, timestamp: int = 1000, **options) -> bytearray:
    records = [Record(base_offset + n, timestamp + n, b"k%d" % n, value, []) for n, value in enumerate(values)]
    return build_batch(records, base_offset=base_offset, partition_leader_epoch=3, **options)


@pytest.fixture
def batches() -> list[bytearray]:
    """Return three batches: offsets 100-101 are plain records, 102-103 belong to a transaction, and 104 is the
    transaction's COMMIT marker.
    """
    return [
        build_batch(
            [
                Record(BASE, 1000, b"key", b"value", [("h1", b"x"), ("h2", None)]),
                Record(BASE + 1, 1001, None, None, []),
            ],
            base_offset=BASE,
            partition_leader_epoch=3,
        ),
        plain_batch(
            BASE + 2, b"a", b"b", timestamp=2000, producer_id=7, producer_epoch=1, base_sequence=5, transactional=True
        ),
        marker_batch(
            EndTransactionMarker(ControlType.COMMIT, 9),
            producer_id=7,
            producer_epoch=1,
            timestamp=3000,
            base_offset=BASE + 4,
            partition_leader_epoch=3,
        ),
    ]


@pytest.fixture
def segment(tmp_path: Path, batches: list[bytearray]) -> Path:
    """Write the .log file and its two index files."""
    log = tmp_path / f"{BASE:020}.log"
    log.write_bytes(b"".join(batches))
    positions = [len(batches[0]), len(batches[0]) + len(batches[1])]
    entries = [OFFSET_ENTRY.pack(3, positions[0]), OFFSET_ENTRY.pack(4, positions[1])]
    log.with_suffix(".index").write_bytes(b"".join(entries) + bytes(16))
    times = [TIME_ENTRY.pack(2001, 3), TIME_ENTRY.pack(3000, 4)]
    log.with_suffix(".timeindex").write_bytes(b"".join(times) + bytes(24))
    return log
