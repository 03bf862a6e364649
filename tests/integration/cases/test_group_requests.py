"""Tests the meaning of fields in each version of the group requests, with raw requests: ids, batches, and the old
positions of error codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from broker_process import BrokerProcess
from foreign_clients import eventually
from raw_client import RawClient
from raw_transactions import RawTransactions

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest
from oncelog_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.join_group import JoinGroupRequest
from oncelog_protocol.messages.leave_group import LeaveGroupRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from oncelog_protocol.messages.sync_group import SyncGroupRequest

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
GroupRequest = OffsetFetchRequest.OffsetFetchRequestGroup
FetchTopic = GroupRequest.OffsetFetchRequestTopics


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as raw:
        raw.call(FindCoordinatorRequest(key="any"), ApiKey.FIND_COORDINATOR, 0)
        yield raw


def topic_id(client: RawClient, name: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
    found: bytes = client.call(request, ApiKey.METADATA, 12).topics[0].topic_id
    return found


def commit(client: RawClient, group: str, version: int, *topics: CommitTopic) -> dict[tuple[str, bytes], int]:
    request = OffsetCommitRequest(group_id=group, member_id="", topics=list(topics))
    answer = client.call(request, ApiKey.OFFSET_COMMIT, version)
    return {(topic.name, topic.topic_id): topic.partitions[0].error_code for topic in answer.topics}


def offset(value: int) -> list[CommitTopic.OffsetCommitRequestPartition]:
    partition = CommitTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=value, committed_metadata="note"
    )
    return [partition]


INTERNAL = {"__consumer_offsets", "__transaction_state"}


class TestFindCoordinator:
    def test_every_version_names_this_broker(self, broker: BrokerProcess, client: RawClient) -> None:
        for version in range(7):
            request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
            answer = client.call(request, ApiKey.FIND_COORDINATOR, version)
            found = answer.coordinators if version >= 4 else [answer]
            assert {(each.node_id, each.host, each.port, each.error_code) for each in found} == {
                (1, "127.0.0.1", broker.port, 0)
            }
            assert len(found) == (2 if version >= 4 else 1)

    def test_coordinators_of_other_key_types_are_refused(self, client: RawClient) -> None:
        for key_type, version, code in (
            (1, 0, ErrorCode.NONE),
            (1, 1, ErrorCode.NONE),
            (1, 6, ErrorCode.NONE),
            # INVALID_REQUEST: the key does not have the form of a share partition's key
            (2, 6, ErrorCode.INVALID_REQUEST),
            (2, 5, ErrorCode.INVALID_REQUEST),
            (9, 6, ErrorCode.INVALID_REQUEST),
        ):
            request = FindCoordinatorRequest(key="x", key_type=key_type, coordinator_keys=["x"])
            answer = client.call(request, ApiKey.FIND_COORDINATOR, version)
            assert (answer.coordinators[0] if version >= 4 else answer).error_code == code

    def test_the_internal_topics_are_marked(self, client: RawClient) -> None:
        client.call(FindCoordinatorRequest(key="x", key_type=1), ApiKey.FIND_COORDINATOR, 1)
        described = client.call(MetadataRequest(topics=None), ApiKey.METADATA, 9).topics
        assert {topic.name for topic in described if topic.is_internal} == INTERNAL
        request = DescribeTopicPartitionsRequest(topics=[])
        described = client.call(request, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0).topics
        assert {topic.name for topic in described if topic.is_internal} == INTERNAL


class TestOffsets:
    @pytest.mark.parametrize("version", range(2, 11))
    def test_commit_and_fetch_in_every_version(self, client: RawClient, topic: str, version: int) -> None:
        client.create_topic(topic)
        found = topic_id(client, topic)
        by_id = version >= 10
        where = (topic, bytes(16)) if not by_id else ("", found)
        assert commit(client, topic, version, CommitTopic(name=topic, topic_id=found, partitions=offset(5))) == {
            where: 0
        }
        for fetch_version in range(1, 11):
            topics = [FetchTopic(name=topic, topic_id=found, partition_indexes=[0, 1])]
            request = OffsetFetchRequest(
                group_id=topic,
                topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])],
                groups=[GroupRequest(group_id=topic, topics=topics)],
            )
            answer = client.call(request, ApiKey.OFFSET_FETCH, fetch_version)
            only = (answer.groups[0] if fetch_version >= 8 else answer).topics[0]
            assert [(p.committed_offset, p.metadata, p.error_code) for p in only.partitions] == [
                (5, "note", 0),
                (-1, "", 0),
            ]

    def test_offsets_of_an_unknown_group_are_empty(self, client: RawClient, topic: str) -> None:
        client.create_topic(topic)
        found, unknown = topic_id(client, topic), b"\x01" * 16
        codes = commit(
            client,
            topic,
            10,
            CommitTopic(topic_id=unknown, partitions=offset(1)),
            CommitTopic(topic_id=found, partitions=offset(2)),
        )
        assert codes == {("", unknown): ErrorCode.UNKNOWN_TOPIC_ID, ("", found): 0}
        topics = [FetchTopic(topic_id=known, partition_indexes=[0]) for known in (unknown, found)]
        request = OffsetFetchRequest(groups=[GroupRequest(group_id=topic, topics=topics)])
        answer = client.call(request, ApiKey.OFFSET_FETCH, 10).groups[0]
        assert {t.topic_id: t.partitions[0].error_code for t in answer.topics} == {
            unknown: ErrorCode.UNKNOWN_TOPIC_ID,
            found: 0,
        }

    def test_all_topics_of_many_groups_are_fetched(self, client: RawClient, topic: str) -> None:
        client.create_topic(topic)
        for number in range(3):
            commit(client, f"{topic}-{number}", 8, CommitTopic(name=topic, partitions=offset(number)))
        wanted = [GroupRequest(group_id=f"{topic}-{number}", topics=None) for number in range(4)]
        for version in (8, 9, 10):
            answer = client.call(OffsetFetchRequest(groups=wanted), ApiKey.OFFSET_FETCH, version)
            found = [[t.partitions[0].committed_offset for t in group.topics] for group in answer.groups]
            assert found == [[0], [1], [2], []]

    def test_offsets_of_a_deleted_topic_go_with_it(self, client: RawClient, topic: str) -> None:
        wanted = [GroupRequest(group_id=topic, topics=None)]
        client.create_topic(topic)
        commit(client, topic, 8, CommitTopic(name=topic, partitions=offset(5)))
        client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), ApiKey.DELETE_TOPICS, 4)
        client.create_topic(topic)
        assert client.call(OffsetFetchRequest(groups=wanted), ApiKey.OFFSET_FETCH, 8).groups[0].topics == []
        commit(client, topic, 8, CommitTopic(name=topic, partitions=offset(6)))
        (found,) = client.call(OffsetFetchRequest(groups=wanted), ApiKey.OFFSET_FETCH, 8).groups[0].topics
        assert found.partitions[0].committed_offset == 6

    def test_a_commit_to_a_missing_topic_is_refused(self, client: RawClient, topic: str) -> None:
        assert commit(client, topic, 8, CommitTopic(name="no-such-topic", partitions=offset(1))) == {
            ("no-such-topic", bytes(16)): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }

    def test_a_group_with_very_many_offsets_is_deleted(self, client: RawClient, topic: str) -> None:
        """Deleting the group writes more tombstones than fit into one batch."""
        client.create_topic(topic, partitions=80)
        group = f"{topic}-" + "many" * 5_000
        for start in (0, 40):
            partitions = [
                CommitTopic.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_metadata=""
                )
                for index in range(start, start + 40)
            ]
            assert commit(client, group, 8, CommitTopic(name=topic, partitions=partitions)) == {(topic, bytes(16)): 0}
        delete = DeleteGroupsRequest(groups_names=[group])
        assert client.call(delete, ApiKey.DELETE_GROUPS, 2).results[0].error_code == ErrorCode.NONE
        fetch = OffsetFetchRequest(groups=[GroupRequest(group_id=group, topics=None)])
        assert client.call(fetch, ApiKey.OFFSET_FETCH, 8).groups[0].topics == []
        assert client.call(delete, ApiKey.DELETE_GROUPS, 2).results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


class TestMembers:
    def join(self, client: RawClient, group: str, version: int) -> tuple[str, int]:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
        request = JoinGroupRequest(
            group_id=group, session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=[protocol]
        )
        answer = client.call(request, ApiKey.JOIN_GROUP, version)
        if version >= 4:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            request.member_id = answer.member_id
            answer = client.call(request, ApiKey.JOIN_GROUP, version)
        assert answer.error_code == 0
        assert [member.metadata for member in answer.members] == [b"m"]
        return answer.member_id, answer.generation_id

    @pytest.mark.parametrize("version", range(10))
    def test_a_member_lives_in_every_version(self, client: RawClient, topic: str, version: int) -> None:
        member_id, generation = self.join(client, topic, version)
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"yours")
        sync = SyncGroupRequest(
            group_id=topic,
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
            assignments=[given],
        )
        assert client.call(sync, ApiKey.SYNC_GROUP, min(version, 5)).assignment == b"yours"
        beat = HeartbeatRequest(group_id=topic, generation_id=generation, member_id=member_id)
        assert client.call(beat, ApiKey.HEARTBEAT, min(version, 4)).error_code == 0
        described = client.call(
            DescribeGroupsRequest(groups=[topic], include_authorized_operations=True),
            ApiKey.DESCRIBE_GROUPS,
            min(version, 6),
        ).groups[0]
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        assert described.members[0].member_assignment == b"yours"
        deletion = client.call(DeleteGroupsRequest(groups_names=[topic]), ApiKey.DELETE_GROUPS, min(version, 2))
        assert deletion.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        leave = LeaveGroupRequest(
            group_id=topic, member_id=member_id, members=[LeaveGroupRequest.MemberIdentity(member_id=member_id)]
        )
        answer = client.call(leave, ApiKey.LEAVE_GROUP, min(version, 5))
        assert answer.error_code == 0
        assert [member.error_code for member in answer.members] == ([0] if version >= 3 else [])
        again = client.call(leave, ApiKey.LEAVE_GROUP, min(version, 5))
        codes = [member.error_code for member in again.members] if version >= 3 else [again.error_code]
        assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]
        deletion = client.call(DeleteGroupsRequest(groups_names=[topic]), ApiKey.DELETE_GROUPS, min(version, 2))
        assert deletion.results[0].error_code == 0

    def test_requests_to_a_missing_group_are_refused(self, client: RawClient) -> None:
        for version, code in ((0, 0), (5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
            (group,) = client.call(DescribeGroupsRequest(groups=["nobody"]), ApiKey.DESCRIBE_GROUPS, version).groups
            assert (group.error_code, group.group_state) == (code, "Dead")
        (result,) = client.call(DeleteGroupsRequest(groups_names=["nobody"]), ApiKey.DELETE_GROUPS, 2).results
        assert result.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    def test_from_v5_on_sync_group_names_type_and_protocol(self, client: RawClient, topic: str) -> None:
        member_id, generation = self.join(client, topic, 9)
        for names in ({}, {"protocol_type": "consumer"}, {"protocol_name": "range"}):
            sync = SyncGroupRequest(
                group_id=topic, generation_id=generation, member_id=member_id, assignments=[], **names
            )
            answer = client.call(sync, ApiKey.SYNC_GROUP, 5)
            assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        (group,) = client.call(DescribeGroupsRequest(groups=[topic]), ApiKey.DESCRIBE_GROUPS, 5).groups
        assert group.group_state == "CompletingRebalance"

    def test_while_a_group_rebalances_the_last_assignments_are_shown(
        self, broker: BrokerProcess, client: RawClient, topic: str
    ) -> None:
        member_id, generation = self.join(client, topic, 4)
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"yours")
        sync = SyncGroupRequest(group_id=topic, generation_id=generation, member_id=member_id, assignments=[given])
        client.call(sync, ApiKey.SYNC_GROUP, 4)
        with RawClient(broker.port) as other:
            protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
            joining = JoinGroupRequest(
                group_id=topic,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                member_id="",
                protocol_type="consumer",
                protocols=[protocol],
            )
            other.send(joining, ApiKey.JOIN_GROUP, 3)
            beat = HeartbeatRequest(group_id=topic, generation_id=generation, member_id=member_id)
            eventually(
                lambda: client.call(beat, ApiKey.HEARTBEAT, 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS,
                "the group rebalances",
            )
            (group,) = client.call(DescribeGroupsRequest(groups=[topic]), ApiKey.DESCRIBE_GROUPS, 5).groups
            assert group.group_state == "PreparingRebalance"
            shown = {member.member_id: (member.member_assignment, member.member_metadata) for member in group.members}
            assert shown.pop(member_id) == (b"yours", b"")
            assert list(shown.values()) == [(b"", b"")]

    @pytest.mark.parametrize("version", range(6))
    def test_leaving_a_missing_group_is_refused(self, client: RawClient, version: int) -> None:
        identities = [LeaveGroupRequest.MemberIdentity(member_id=name) for name in ("a", "b")]
        leave = LeaveGroupRequest(group_id="nobody", member_id="a", members=identities)
        answer = client.call(leave, ApiKey.LEAVE_GROUP, version)
        codes = [(member.member_id, member.error_code) for member in answer.members]
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert (answer.error_code, codes) == ((0, [("a", unknown), ("b", unknown)]) if version >= 3 else (unknown, []))

    def test_an_empty_group_id_is_refused(self, client: RawClient) -> None:
        requests: list[tuple[Any, ApiKey, int]] = [
            (HeartbeatRequest(group_id="", generation_id=1, member_id="m"), ApiKey.HEARTBEAT, 4),
            (SyncGroupRequest(group_id="", generation_id=1, member_id="m", assignments=[]), ApiKey.SYNC_GROUP, 4),
            (LeaveGroupRequest(group_id="", members=[]), ApiKey.LEAVE_GROUP, 5),
            (OffsetDeleteRequest(group_id="", topics=[]), ApiKey.OFFSET_DELETE, 0),
        ]
        for request, api_key, version in requests:
            assert client.call(request, api_key, version).error_code == ErrorCode.INVALID_GROUP_ID

    def test_from_v7_on_a_new_member_is_told_of_no_protocol(self, client: RawClient, topic: str) -> None:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
        for version in range(4, 10):
            joining = JoinGroupRequest(
                group_id=topic, session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=[protocol]
            )
            answer = client.call(joining, ApiKey.JOIN_GROUP, version)
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert answer.protocol_name == (None if version >= 7 else "")


class TestNamedTwice:
    """A request that repeats a name has the same result as a request without the repetition, and costs the broker no
    more work.
    """

    def test_a_group_named_twice_has_its_offsets_fetched_once(self, client: RawClient, topic: str) -> None:
        client.create_topic(topic, partitions=3)
        assert set(commit(client, topic, 9, CommitTopic(name=topic, partitions=offset(5))).values()) == {0}
        named = [FetchTopic(name=topic, partition_indexes=[0, 1, 0]), FetchTopic(name=topic, partition_indexes=[1, 2])]
        for groups, expected in (
            ([GroupRequest(group_id=topic, topics=None)] * 1000, [(0, 5)]),
            ([GroupRequest(group_id=topic, topics=named), GroupRequest(group_id=topic, topics=named[:1])], None),
            ([GroupRequest(group_id=topic, topics=named), GroupRequest(group_id=topic, topics=None)], [(0, 5)]),
        ):
            answer = client.call(OffsetFetchRequest(groups=groups), ApiKey.OFFSET_FETCH, 8)
            (group,) = answer.groups
            (found,) = group.topics
            offsets = [(partition.partition_index, partition.committed_offset) for partition in found.partitions]
            assert offsets == (expected or [(0, 5), (1, -1), (2, -1)])

    def test_groups_named_twice_are_described_once(self, client: RawClient, topic: str) -> None:
        asked = DescribeGroupsRequest(groups=[topic, "nobody", topic] * 100)
        found = client.call(asked, ApiKey.DESCRIBE_GROUPS, 5).groups
        assert [group.group_id for group in found] == [topic, "nobody"]

    def test_keys_named_twice_have_their_coordinator_found_once(self, client: RawClient) -> None:
        asked = FindCoordinatorRequest(coordinator_keys=["g", "h"] * 100)
        found = client.call(asked, ApiKey.FIND_COORDINATOR, 4).coordinators
        assert [coordinator.key for coordinator in found] == ["g", "h"]

    def test_transactions_named_twice_are_described_once(self, client: RawClient, topic: str) -> None:
        RawTransactions(client, topic).take_over()
        asked = DescribeTransactionsRequest(transactional_ids=[topic, "nobody"] * 100)
        found = client.call(asked, ApiKey.DESCRIBE_TRANSACTIONS, 0).transaction_states
        assert [state.transactional_id for state in found] == [topic, "nobody"]

    def test_partitions_named_twice_are_described_once(self, client: RawClient, topic: str) -> None:
        client.create_topic(topic, partitions=2)
        named = [
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=indexes)
            for indexes in ([0] * 1000, [1, 0])
        ]
        (found,) = client.call(DescribeProducersRequest(topics=named), ApiKey.DESCRIBE_PRODUCERS, 0).topics
        assert [partition.partition_index for partition in found.partitions] == [0, 1]


class TestOutOfRange:
    def test_a_commit_to_missing_partitions_is_refused(self, client: RawClient, topic: str) -> None:
        client.create_topic(topic, partitions=2)
        wanted = [
            CommitTopic.OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata="")
            for index in (0, 2, 9, 2**31 - 1, -1)
        ]
        request = OffsetCommitRequest(group_id=topic, member_id="", topics=[CommitTopic(name=topic, partitions=wanted)])
        answer = client.call(request, ApiKey.OFFSET_COMMIT, 7)
        assert [partition.error_code for partition in answer.topics[0].partitions] == [0, 3, 3, 3, 3]

    @pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**62, -(2**63)])
    def test_an_enormous_retention_time_is_accepted(self, client: RawClient, topic: str, retention_ms: int) -> None:
        client.create_topic(topic)
        request = OffsetCommitRequest(
            group_id=topic,
            member_id="",
            retention_time_ms=retention_ms,
            topics=[CommitTopic(name=topic, partitions=offset(5))],
        )
        assert client.call(request, ApiKey.OFFSET_COMMIT, 4).topics[0].partitions[0].error_code == 0

    def test_leader_epochs_before_the_first_are_accepted(self, client: RawClient, topic: str) -> None:
        client.create_topic(topic)
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        for epoch in (-1, -2, -(2**31)):
            partition = asked.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[asked(topic=topic, partitions=[partition])])
            answer = client.call(request, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4).topics[0].partitions[0]
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, -1, -1)
