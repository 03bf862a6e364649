import pytest

from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.control import (
    ControlType,
    EndTransactionMarker,
    marker_batch,
    parse_control_key,
    parse_marker,
    read_marker,
)
from oncelog_protocol.records.record import Record

NOW = 1_700_000_000_000


def test_s39_abort_is_0_and_commit_is_1():
    """If the codes of the control types were exchanged, commits would become aborts and vice versa without any error
    (S39).
    """
    assert EndTransactionMarker(ControlType.ABORT, 5).key().hex() == "00000000"
    assert EndTransactionMarker(ControlType.COMMIT, 5).key().hex() == "00000001"
    assert EndTransactionMarker(ControlType.COMMIT, 5).value().hex() == "000000000005"


@pytest.mark.parametrize("control_type", ControlType)
def test_s39_a_marker_batch_has_kafkas_fields(control_type):
    marker = EndTransactionMarker(control_type, 2**31 - 1)
    raw = marker_batch(marker, producer_id=9, producer_epoch=3, timestamp=NOW, base_offset=77, partition_leader_epoch=4)
    batch = RecordBatch(raw)
    assert batch.crc_is_valid()
    assert batch.is_control
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 3, -1)
    assert (batch.base_offset, batch.last_offset, batch.records_count) == (77, 77, 1)
    assert (batch.max_timestamp, batch.partition_leader_epoch) == (NOW, 4)
    assert read_marker(batch) == marker
    assert read_marker(batch).is_commit is (control_type is ControlType.COMMIT)


@pytest.mark.parametrize("control_type", ControlType)
def test_a_marker_batch_is_as_any_batch_of_its_record(control_type):
    marker = EndTransactionMarker(control_type, 258)
    record = Record(0, NOW, marker.key(), marker.value(), [])
    stamp = {"producer_id": 2**40, "producer_epoch": 7}
    built = build_batch([record], transactional=True, control=True, **stamp)
    assert marker_batch(marker, timestamp=NOW, **stamp) == built


def test_other_control_types_are_no_markers():
    assert parse_control_key(b"\x00\x00\x00\x02") is None
    assert parse_marker(Record(0, NOW, b"\x00\x00\x00\x02", b"", [])) is None
    raw = build_batch([Record(0, NOW, b"\x00\x00\xff\xff", b"", [])], control=True)
    assert read_marker(RecordBatch(raw)) is None


def test_an_emptied_control_batch_has_no_marker():
    assert read_marker(RecordBatch(build_batch([], control=True))) is None


def test_later_versions_may_append_fields():
    record = Record(0, NOW, b"\x00\x01\x00\x01+", b"\x00\x01\x00\x00\x00\x07+", [])
    assert parse_marker(record) == EndTransactionMarker(ControlType.COMMIT, 7)


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_bad_keys_are_corrupt(key):
    with pytest.raises(CorruptBatch):
        parse_control_key(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_bad_values_are_corrupt(value):
    with pytest.raises(CorruptBatch):
        parse_marker(Record(0, NOW, b"\x00\x00\x00\x01", value, []))
