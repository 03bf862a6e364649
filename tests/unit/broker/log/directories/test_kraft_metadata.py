"""Topic settings are read from a KRaft metadata log: from the log alone, from a snapshot with the log after it, and
despite unreadable records.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog_broker.log.directories.kraft_metadata import read_topic_configs
from oncelog_broker.runtime.disk import RealDisk
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record
from oncelog_protocol.wire_writers import uvarint

LOG = "00000000000000000000.log"
SNAPSHOT = "00000000000000000002-0000000001.checkpoint"


def text(value: str | None) -> bytes:
    return uvarint(0) if value is None else uvarint(len(value) + 1) + value.encode()


def topic(name: str, topic_id: bytes) -> bytes:
    return b"\x01\x02\x00" + text(name) + topic_id + b"\x00"


def removed(topic_id: bytes) -> bytes:
    return b"\x01\x09\x00" + topic_id + b"\x00"


def config(name: str, key: str, value: str | None, kind: int = 2) -> bytes:
    return b"\x01\x04\x00" + bytes((kind,)) + text(name) + text(key) + text(value) + b"\x00"


def batch(base_offset: int, *values: bytes) -> bytes:
    made = bytearray(build_batch([Record(offset, 0, None, value, []) for offset, value in enumerate(values)]))
    made[:8] = base_offset.to_bytes(8, "big")
    return bytes(made)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "__cluster_metadata-0"
    made.mkdir()
    return made


def read(directory: Path) -> dict[str, dict[str, str]]:
    return read_topic_configs(RealDisk(), str(directory.parent))


def test_a_directory_without_metadata_log_has_no_settings(tmp_path: Path) -> None:
    assert read_topic_configs(RealDisk(), str(tmp_path)) == {}


def test_the_last_value_counts_and_a_null_takes_it_away(directory: Path) -> None:
    records = [
        config("a", "cleanup.policy", "delete"),
        config("a", "cleanup.policy", "compact"),
        config("a", "retention.ms", "1"),
        config("a", "retention.ms", None),
        config("b", "retention.ms", "-1"),
        config("b", "retention.ms", None),
        config("7", "log.retention.ms", "1", kind=4),
        b"\x01\x1f\x00what we do not know",
    ]
    (directory / LOG).write_bytes(b"".join(batch(offset, record) for offset, record in enumerate(records)))
    assert read(directory) == {"a": {"cleanup.policy": "compact"}}


def test_a_deleted_topic_leaves_nothing_to_the_next_of_its_name(directory: Path) -> None:
    first, second = b"1" * 16, b"2" * 16
    (directory / LOG).write_bytes(
        batch(0, topic("a", first), config("a", "retention.ms", "1"), removed(first), topic("a", second))
        + batch(4, config("a", "segment.ms", "5"))
    )
    assert read(directory) == {"a": {"segment.ms": "5"}}


def test_the_log_continues_where_the_snapshot_ends(directory: Path) -> None:
    (directory / SNAPSHOT).write_bytes(batch(0, config("a", "retention.ms", "1"), config("b", "retention.ms", "1")))
    (directory / LOG).write_bytes(batch(1, config("a", "retention.ms", "old"), config("b", "retention.ms", None)))
    assert read(directory) == {"a": {"retention.ms": "1"}}


@pytest.mark.parametrize("end", [b"torn", b"\x00" * 100, batch(1, b"\x02\x04\x00"), batch(1, b"\x01\x04\x00\x02\xff")])
def test_reading_the_metadata_log_ends_at_an_unreadable_record(
    directory: Path, end: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (directory / LOG).write_bytes(batch(0, config("a", "retention.ms", "1")) + end)
    assert read(directory) == {"a": {"retention.ms": "1"}}
    assert "ends at an unreadable record" in caplog.text
