"""Group records survive encoding and decoding, in the versions that current Kafka releases write."""

from oncelog_broker.coordinator.group.records import decode, encode, group_record, offset_record
from oncelog_protocol.coordinator_records.consumer_offsets import GroupMetadataValue, OffsetCommitValue
from oncelog_protocol.coordinator_records.versioned import encode_versioned, read_version


def test_offsets_and_their_tombstones():
    value = OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=7)
    for record in (offset_record("g", "t", 3, value), offset_record("g", "t", 3, None)):
        encoded = encode(record)
        assert decode(*encoded) == record
    assert read_version(encode(offset_record("g", "t", 3, value)).value) == 3


def test_an_offset_with_an_expiry_of_its_own_is_written_in_the_version_that_has_it():
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=7, expire_timestamp=9)
    encoded = encode(offset_record("g", "t", 0, value))
    assert read_version(encoded.value) == 1
    assert decode(*encoded).value.expire_timestamp == 9


def test_groups_and_their_tombstones():
    value = GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader=None, members=[])
    for record in (group_record("g", value), group_record("g", None)):
        assert decode(*encode(record)) == record
    assert read_version(encode(group_record("g", value)).value) == 3


def test_both_old_versions_of_offset_keys_are_read():
    key = offset_record("g", "t", 3, None).key
    assert decode(encode_versioned(key, 0), None) == decode(encode_versioned(key, 1), None)


def test_record_types_of_later_protocols_are_skipped():
    for kind in (9, 18, 24, 1000):
        assert decode(kind.to_bytes(2, "big") + b"whatever", b"\x00\x00whatever") is None
