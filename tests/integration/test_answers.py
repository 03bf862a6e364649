"""Answers that other clients depend on, asked for raw: found by comparing with Apache Kafka 4.1, one by one."""

from __future__ import annotations

import time

import pytest
from broker_process import BrokerProcess
from raw_client import CREATE_TOPICS_VERSION, FETCH_VERSION, PRODUCE_VERSION, RawClient, produce_request

from oncelog_protocol.api import ApiKey
from oncelog_protocol.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.describe_cluster import DescribeClusterRequest
from oncelog_protocol.messages.describe_configs import DescribeConfigsRequest, ResourceType
from oncelog_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest
from oncelog_protocol.messages.metadata import MetadataRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

KAFKA_TOPIC_OPERATIONS = 3576
KAFKA_CLUSTER_OPERATIONS = 8096
"""What Apache Kafka answers where no authorizer is configured."""


def test_described_partitions_have_lists_where_java_takes_no_null(broker: BrokerProcess, topic: str) -> None:
    with RawClient(broker.port) as client:
        client.create_topic(topic)
        request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name=topic)])
        (described,) = client.call(request, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0).topics
    assert described.partitions[0].eligible_leader_replicas == []
    assert described.partitions[0].last_known_elr == []
    assert described.topic_authorized_operations == KAFKA_TOPIC_OPERATIONS


@pytest.mark.parametrize("asked", [True, False])
def test_authorized_operations_on_demand(broker: BrokerProcess, topic: str, asked: bool) -> None:
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


def test_that_a_topic_exists_is_said_before_anything_else(broker: BrokerProcess, topic: str) -> None:
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


def test_what_a_client_wrote_is_not_quoted_beyond_what_a_response_can_carry(broker: BrokerProcess, topic: str) -> None:
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


def test_what_is_named_many_times_is_answered_once(broker: BrokerProcess, topic: str) -> None:
    """A request of 100 KB took gigabytes and a minute otherwise."""
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
        max_wait_ms=15_000,
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
    assert time.monotonic() - started < 10
