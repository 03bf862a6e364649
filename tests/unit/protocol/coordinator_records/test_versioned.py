"""Keys and values start with an int16 version, and values of every version are decoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog_protocol.coordinator_records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from oncelog_protocol.coordinator_records.versioned import decode_versioned, encode_versioned, read_version
from oncelog_protocol.errors import MalformedMessage

MEMBER = GroupMetadataValue.MemberMetadata(
    member_id="m",
    group_instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout=1,
    session_timeout=2,
    subscription=b"s",
    assignment=b"a",
)


def test_the_bytes_of_an_offset_commit_are_kafkas():
    key = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=7), 1)
    assert key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x07"
    value = encode_versioned(OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9), 3)
    assert value == b"\x00\x03" + (5).to_bytes(8, "big") + b"\x00\x00\x00\x02\x00\x01m" + (9).to_bytes(8, "big")


def test_the_bytes_of_a_group_key_are_kafkas():
    assert encode_versioned(GroupMetadataKey(group="g"), 2) == b"\x00\x02\x00\x01g"


@pytest.mark.parametrize("version", range(5))
def test_values_of_every_version_come_back(version):
    offset = OffsetCommitValue(offset=1, metadata="", commit_timestamp=2)
    assert decode_versioned(OffsetCommitValue, encode_versioned(offset, version)) == offset
    group = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="m", members=[MEMBER])
    read = decode_versioned(GroupMetadataValue, encode_versioned(group, version))
    assert (read.generation, read.protocol, read.members[0].assignment) == (3, "range", b"a")
    assert read.members[0].group_instance_id == ("i" if version >= 3 else None)
    assert read.members[0].rebalance_timeout == (1 if version >= 1 else -1)


@given(st.binary(max_size=60))
def test_any_bad_bytes_raise_the_same_error(data):
    for cls in (OffsetCommitKey, OffsetCommitValue, GroupMetadataKey, GroupMetadataValue):
        try:
            decode_versioned(cls, data)
        except MalformedMessage:
            continue
        assert len(data) > 2


def test_too_short_and_too_new_records_are_refused():
    with pytest.raises(MalformedMessage, match="too short"):
        read_version(b"\x00")
    with pytest.raises(MalformedMessage, match="version 9"):
        decode_versioned(OffsetCommitValue, b"\x00\x09" + bytes(30))
