"""Requests and responses about offsets, in the formats of old and new versions."""

from __future__ import annotations

import pytest

from oncelog.cluster import TopicPartition
from oncelog.config import ConsumerConfig
from oncelog.consumer.group.commits import (
    OffsetAndMetadata,
    commit_request,
    fetch_request,
    read_committed_offsets,
)
from oncelog.consumer.group.membership import Generation
from oncelog.errors import ErrorCode, KafkaError
from oncelog_protocol.codec import codec
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

CONFIG = ConsumerConfig(bootstrap_servers="h", group_id="g", group_instance_id="i", isolation_level="read_committed")
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_carries_the_fields_of_its_version(version: int) -> None:
    offsets = {B0: OffsetAndMetadata(3), A0: OffsetAndMetadata(1, "note", 7), A1: OffsetAndMetadata(2)}
    coder = codec(OffsetCommitRequest, version)
    told = coder.decode(coder.encode(commit_request(CONFIG, Generation(5, "me"), offsets)))
    assert (told.group_id, told.generation_id_or_member_epoch, told.member_id) == ("g", 5, "me")
    assert told.group_instance_id == ("i" if version >= 7 else None)
    found = {
        TopicPartition(topic.name, part.partition_index): OffsetAndMetadata(
            part.committed_offset, part.committed_metadata or "", part.committed_leader_epoch
        )
        for topic in told.topics
        for part in topic.partitions
    }
    expected = offsets if version >= 6 else {place: told._replace(leader_epoch=-1) for place, told in offsets.items()}
    assert found == expected


@pytest.mark.parametrize("version", range(1, 10))
def test_an_offset_fetch_carries_the_fields_of_its_version(version: int) -> None:
    coder = codec(OffsetFetchRequest, version)
    told = coder.decode(coder.encode(fetch_request(CONFIG, [B0, A1, A0])))
    if version >= 8:
        assert [group.group_id for group in told.groups] == ["g"]
        topics = told.groups[0].topics
    else:
        assert told.group_id == "g"
        topics = told.topics
    assert [(topic.name, topic.partition_indexes) for topic in topics or ()] == [("a", [0, 1]), ("b", [0])]
    assert told.require_stable is (version >= 7)


def answer(version: int, error_code: int = 0) -> OffsetFetchResponse:
    if version < 8:
        topic = OffsetFetchResponse.OffsetFetchResponseTopic
        place = topic.OffsetFetchResponsePartition
        old = [
            place(partition_index=0, committed_offset=4, metadata="note", error_code=error_code),
            place(partition_index=1, committed_offset=-1, metadata="", error_code=0),
        ]
        return OffsetFetchResponse(topics=[topic(name="a", partitions=old)])
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    spot = group.OffsetFetchResponseTopics.OffsetFetchResponsePartitions
    new = [
        spot(partition_index=0, committed_offset=4, metadata="note", error_code=error_code),
        spot(partition_index=1, committed_offset=-1, metadata=None, error_code=0),
    ]
    topics = [group.OffsetFetchResponseTopics(name="a", partitions=new)]
    return OffsetFetchResponse(groups=[group(group_id="g", topics=topics)])


@pytest.mark.parametrize("version", [1, 8])
def test_committed_offsets_are_read_back(version: int) -> None:
    assert read_committed_offsets(answer(version)) == {A0: OffsetAndMetadata(4, "note", -1)}


@pytest.mark.parametrize("version", [1, 8])
def test_an_error_of_a_partition_is_raised(version: int) -> None:
    with pytest.raises(KafkaError) as raised:
        read_committed_offsets(answer(version, ErrorCode.UNSTABLE_OFFSET_COMMIT))
    assert raised.value.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert raised.value.retriable
    assert "a-0" in raised.value.message
