"""Tests responses on which other clients depend, with raw requests; each case was found by a comparison with Apache
Kafka 4.1.
"""

from __future__ import annotations

import time

import pytest
from broker_process import BrokerFactory, BrokerProcess
from foreign_clients import eventually
from raw_client import CREATE_TOPICS_VERSION, FETCH_VERSION, PRODUCE_VERSION, RawClient, produce_request

from oncelog_broker.metadata.topic_names import CONSUMER_OFFSETS
from oncelog_protocol.api import ApiKey
from oncelog_protocol.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.create_partitions import CreatePartitionsRequest
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest
from oncelog_protocol.messages.describe_cluster import DescribeClusterRequest
from oncelog_protocol.messages.describe_configs import DescribeConfigsRequest, ResourceType
from oncelog_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from oncelog_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from oncelog_protocol.records.batch import batches
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.compression import Compression
from oncelog_protocol.records.record import Record

KAFKA_TOPIC_OPERATIONS = 3576
KAFKA_CLUSTER_OPERATIONS = 8096
"""The authorized operations that Apache Kafka returns for a cluster if no authorizer is configured."""


def test_described_partitions_have_lists_where_java_takes_no_null(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic)])
        (described,) = client.call(request, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0).topics
    assert described.partitions[0].eligible_leader_replicas == []
    assert described.partitions[0].last_known_elr == []
    assert described.topic_authorized_operations == KAFKA_TOPIC_OPERATIONS


@pytest.mark.parametrize("asked", [True, False])
def test_authorized_operations_are_returned_on_demand(broker: BrokerProcess, topic: str, asked: bool) -> None:
    metadata = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
        include_cluster_authorized_operations=asked,
        include_topic_authorized_operations=asked,
    )
    cluster = DescribeClusterRequest(include_cluster_authorized_operations=asked)
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        answer = client.call(metadata, ApiKey.METADATA, 8)
        described = client.call(cluster, ApiKey.DESCRIBE_CLUSTER, 1)
    on_topic, on_cluster = (
        (KAFKA_TOPIC_OPERATIONS, KAFKA_CLUSTER_OPERATIONS)
        if asked
        else (AUTHORIZED_OPERATIONS_OMITTED, AUTHORIZED_OPERATIONS_OMITTED)
    )
    assert answer.topics[0].topic_authorized_operations == on_topic
    assert answer.cluster_authorized_operations == on_cluster
    assert described.cluster_authorized_operations == on_cluster


def test_an_existing_topic_is_reported_before_other_errors(broker: BrokerProcess, topic: str) -> None:
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic,
        num_partitions=0,
        replication_factor=7,
        assignments=[],
        configs=[CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name="no.such.key", value="1")],
    )
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        answer = client.call(CreateTopicsRequest(topics=[wanted]), ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)
    assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_long_client_values_are_shortened_in_error_messages(broker: BrokerProcess, topic: str) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    wanted = resource(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        configs=[resource.AlterableConfig(name="x" * 32767, config_operation=0, value="1")],
    )
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        answer = client.call(
            IncrementalAlterConfigsRequest(resources=[wanted], validate_only=False), ApiKey.INCREMENTAL_ALTER_CONFIGS, 0
        )
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG


def test_a_repeated_name_is_answered_once(broker: BrokerProcess, topic: str) -> None:
    """If the broker processed a name once for each repetition in the request, a request of 100 KB would take gigabytes
    of memory and a minute.
    """
    metadata = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)] * 1000)
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=["segment.bytes"]
    )
    configs = DescribeConfigsRequest(resources=[resource] * 1000)
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        assert [found.name for found in client.call(metadata, ApiKey.METADATA, 9).topics] == [topic]
        (described,) = client.call(configs, ApiKey.DESCRIBE_CONFIGS, 4).results
    assert [config.name for config in described.configs] == ["segment.bytes"]


def test_offsets_of_a_partition_named_twice_are_refused(broker: BrokerProcess, topic: str) -> None:
    asked = ListOffsetsRequest.ListOffsetsTopic
    twice = [asked.ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP)] * 2
    once = [asked.ListOffsetsPartition(partition_index=1, timestamp=LATEST_TIMESTAMP)]
    request = ListOffsetsRequest(replica_id=-1, topics=[asked(name=topic, partitions=twice + once)])
    with RawClient(broker.port) as client:
        client.create_topic(topic, partitions=2)
        (answer,) = client.call(request, ApiKey.LIST_OFFSETS, 7).topics
    assert [found.error_code for found in answer.partitions] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]


def test_a_fetch_does_not_wait_for_more_than_it_would_take(broker: BrokerProcess, topic: str) -> None:
    batch = build_batch([Record(0, 1, b"key", b"value" * 100, [])])
    asked = FetchRequest.FetchTopic
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1_000_000,
        max_bytes=len(batch),
        topics=[
            asked(topic=topic, partitions=[asked.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1024)])
        ],
    )
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        for _ in range(3):
            client.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
        started = time.monotonic()
        (answer,) = client.call(request, ApiKey.FETCH, FETCH_VERSION).responses[0].partitions
    assert len(answer.records or b"") == len(batch)
    assert time.monotonic() - started < 30


def test_a_reader_whose_records_are_not_in_the_log_is_told_where_it_leaves_it(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    batch = build_batch([Record(n, 1, b"key", b"value", []) for n in range(10)])
    raw.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
    asked = FetchRequest.FetchTopic

    def fetch(offset: int, epoch: int) -> FetchResponse.FetchableTopicResponse.PartitionData:
        wanted = asked.FetchPartition(
            partition=0, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1024
        )
        request = FetchRequest(max_wait_ms=15_000, min_bytes=10_000, topics=[asked(topic=topic, partitions=[wanted])])
        (answer,) = raw.call(request, ApiKey.FETCH, FETCH_VERSION).responses[0].partitions
        return answer

    started = time.monotonic()
    diverging = fetch(50, 0)
    assert (diverging.error_code, diverging.records) == (ErrorCode.NONE, b"")
    assert diverging.diverging_epoch is not None
    assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (0, 10)
    assert fetch(5, 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert time.monotonic() - started < 10, "neither waits for more bytes"


# --- E31: errors of another Kafka replacement (found by running Kafka's clients against it)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize("isolation_level", [0, 1])
def test_e31_a_fetch_inside_a_batch_gets_the_whole_batch(
    raw: RawClient, topic: str, compression: Compression, isolation_level: int
) -> None:
    """T11: the client skips the records before the requested offset. If the broker omitted the batch, the client would
    not get the batch's remaining records.
    """
    raw.create_topic(topic)
    for _ in range(2):
        batch = build_batch([Record(0, 1, b"k", b"%d" % n, []) for n in range(10)], compression=compression)
        raw.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
    asked = FetchRequest.FetchTopic
    for offset in (0, 4, 9, 10, 19):
        wanted = asked.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1,
            isolation_level=isolation_level,
            topics=[asked(topic=topic, partitions=[wanted])],
        )
        (answer,) = raw.call(request, ApiKey.FETCH, FETCH_VERSION).responses[0].partitions
        (found,) = batches(answer.records)
        assert (found.base_offset, found.last_offset) == (offset // 10 * 10, offset // 10 * 10 + 9)


def test_e31_a_compacted_topic_takes_no_record_without_a_key(raw: RawClient, topic: str) -> None:
    """T20: the broker refuses a record without a key, because compaction needs a key."""
    raw.create_topic(topic, cleanup_policy="compact")
    for key, code in ((None, ErrorCode.INVALID_RECORD), (b"key", ErrorCode.NONE)):
        batch = build_batch([Record(0, 1, key, b"value", [])])
        answer = raw.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == code
    assert raw.list_offset(topic, 0)[0] == 1


def test_e31_a_batch_above_max_message_bytes_is_too_large(raw: RawClient, topic: str) -> None:
    """T20: the limit is exact to the byte, applies to the batch as sent over the network, and may differ between
    topics.
    """
    batch = build_batch([Record(0, 1, b"key", b"value" * 100, [])])
    for limit, code in ((len(batch) - 1, ErrorCode.MESSAGE_TOO_LARGE), (len(batch), ErrorCode.NONE)):
        name = f"{topic}-{limit}"
        raw.create_topic(name, max_message_bytes=str(limit))
        answer = raw.call(produce_request(name, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == code


def test_e31_offsets_are_found_by_time(raw: RawClient, topic: str) -> None:
    """T12: the response has the offset and timestamp of the first record that is not older than the requested time, and
    -1 and -1 if all records are older.
    """
    raw.create_topic(topic)
    for base in (1000, 2000):
        batch = build_batch([Record(0, base + 10 * n, b"k", b"v", []) for n in range(5)])
        raw.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
    expected = {0: (0, 1000), 1000: (0, 1000), 1001: (1, 1010), 1041: (5, 2000), 2040: (9, 2040), 2041: (-1, -1)}
    assert {asked: raw.list_offset(topic, 0, asked) for asked in expected} == expected


@pytest.mark.parametrize("version", [2, 7, 8])
def test_e31_metadata_committed_with_an_offset_is_returned(
    raw: RawClient, topic: str, group: str, version: int
) -> None:
    """T15: OffsetFetch returns the committed metadata unchanged, and null as an empty text."""
    raw.create_topic(topic, partitions=3)
    lookup = FindCoordinatorRequest(key=group, key_type=CoordinatorType.GROUP)
    eventually(lambda: raw.call(lookup, ApiKey.FIND_COORDINATOR, 2).error_code == 0, "there is a coordinator")
    told = {0: "where we were: größe ✓", 1: "", 2: None}
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        asked.OffsetCommitRequestPartition(partition_index=index, committed_offset=index + 5, committed_metadata=text)
        for index, text in told.items()
    ]
    commit = OffsetCommitRequest(group_id=group, member_id="", topics=[asked(name=topic, partitions=partitions)])
    committed = raw.call(commit, ApiKey.OFFSET_COMMIT, version)
    assert [found.error_code for found in committed.topics[0].partitions] == [ErrorCode.NONE] * 3
    wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1, 2])
    found = raw.call(OffsetFetchRequest(group_id=group, topics=[wanted]), ApiKey.OFFSET_FETCH, 7).topics[0].partitions
    assert {answer.partition_index: (answer.committed_offset, answer.metadata) for answer in found} == {
        index: (index + 5, text or "") for index, text in told.items()
    }


@pytest.mark.parametrize("endpoint_type", [0, 2, 3])
def test_endpoints_that_there_are_not_are_refused_as_kafka_does(raw: RawClient, endpoint_type: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    answer = raw.call(request, ApiKey.DESCRIBE_CLUSTER, 1)
    mismatched, unsupported = ErrorCode.MISMATCHED_ENDPOINT_TYPE, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    assert answer.error_code == (mismatched if endpoint_type == 2 else unsupported)
    assert answer.endpoint_type == 1


def test_records_of_internal_topics_are_not_deleted(raw: RawClient, group: str) -> None:
    lookup = FindCoordinatorRequest(key=group, key_type=CoordinatorType.GROUP)
    eventually(lambda: raw.call(lookup, ApiKey.FIND_COORDINATOR, 2).error_code == 0, "there is a coordinator")
    wanted = DeleteRecordsRequest.DeleteRecordsTopic
    partition = wanted.DeleteRecordsPartition(partition_index=0, offset=0)
    request = DeleteRecordsRequest(topics=[wanted(name=CONSUMER_OFFSETS, partitions=[partition])], timeout_ms=5000)
    (topic,) = raw.call(request, ApiKey.DELETE_RECORDS, 2).topics
    assert topic.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_epochs_that_no_leader_can_have_come_before_all_others(raw: RawClient, topic: str) -> None:
    raw.create_topic(topic)
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    epochs = (-1, -2, -(2**31))

    def ends() -> list[tuple[int, int, int]]:
        found = []
        for epoch in epochs:
            partition = wanted.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(topics=[wanted(topic=topic, partitions=[partition])])
            (answer,) = raw.call(request, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4).topics
            (end,) = answer.partitions
            found.append((end.error_code, end.leader_epoch, end.end_offset))
        return found

    assert ends() == [(0, -1, -1)] * 3, "of an empty log"
    batch = build_batch([Record(0, 1, b"key", b"value", [])])
    raw.call(produce_request(topic, 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION)
    assert ends() == [(0, -1, -1), (0, -2, 0), (0, -(2**31), 0)]


@pytest.mark.parametrize("partitions", [[5000, 5000], [5000, 5000, 1], [10_001], [-1, 9999], [-1, 10_000]])
def test_a_request_may_make_ten_thousand_partitions(broker: BrokerProcess, topic: str, partitions: list[int]) -> None:
    """If a CreateTopics request wants more partitions than the limit, the broker creates none of its topics, as Kafka's
    controller does.
    """
    wanted = [
        CreateTopicsRequest.CreatableTopic(
            name=f"{topic}-{number}", num_partitions=count, replication_factor=1, assignments=[], configs=[]
        )
        for number, count in enumerate(partitions)
    ]
    with RawClient(broker.port) as client:
        request = CreateTopicsRequest(topics=wanted, validate_only=True)
        codes = [answer.error_code for answer in client.call(request, ApiKey.CREATE_TOPICS, 5).topics]
    may_be = sum(1 if count == -1 else count for count in partitions) <= 10_000
    assert codes == [ErrorCode.NONE if may_be else ErrorCode.POLICY_VIOLATION] * len(partitions)


@pytest.mark.parametrize("counts", [[5001, 5001], [5002, 5001]])
def test_a_request_may_add_ten_thousand_partitions(broker: BrokerProcess, topic: str, counts: list[int]) -> None:
    wanted = CreatePartitionsRequest.CreatePartitionsTopic
    with RawClient(broker.port) as client:
        for number in range(len(counts)):
            client.create_topic(f"{topic}-{number}")
        topics = [wanted(name=f"{topic}-{number}", count=count) for number, count in enumerate(counts)]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
        codes = [answer.error_code for answer in client.call(request, ApiKey.CREATE_PARTITIONS, 2).results]
    may_be = sum(counts) - len(counts) <= 10_000
    assert codes == [ErrorCode.NONE if may_be else ErrorCode.POLICY_VIOLATION] * len(counts)


def test_a_first_request_is_handled_although_its_client_disconnected(broker_factory: BrokerFactory, topic: str) -> None:
    """The client has already closed the connection while the broker creates the route for the client's request."""
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    with broker_factory({}) as broker, RawClient(broker.port) as other:
        with RawClient(broker.port) as client:
            client.send(CreateTopicsRequest(topics=[wanted]), ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)

        def names() -> list[str]:
            return [each.name for each in other.call(MetadataRequest(topics=None), ApiKey.METADATA, 12).topics]

        eventually(lambda: topic in names(), "the topic is there")
