"""oncelog's codec produces the same bytes as kafka-python's, which shares no code with it, in both directions and for
every common version.
"""

import importlib
import uuid

import pytest

from oncelog_protocol.api import ApiKey
from oncelog_protocol.codec import codec
from oncelog_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from oncelog_protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from oncelog_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.headers import RequestHeader
from oncelog_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.schema import ZERO_UUID, fields_of, schema_of

pytestmark = pytest.mark.filterwarnings("ignore:.*_text is deprecated")  # raised while kafka-python is imported

TOPIC_ID = bytes(range(1, 17))
RECORDS = b"any bytes do: record data is opaque here"


def produce_request():
    data = ProduceRequest.TopicProduceData.PartitionProduceData
    return ProduceRequest(
        transactional_id="payments-1",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="payments",
                topic_id=TOPIC_ID,
                partition_data=[data(index=0, records=RECORDS), data(index=7, records=None)],
            )
        ],
    )


def produce_response():
    topic = ProduceResponse.TopicProduceResponse
    partition = topic.PartitionProduceResponse
    return ProduceResponse(
        responses=[
            topic(
                name="payments",
                topic_id=TOPIC_ID,
                partition_responses=[
                    partition(index=0, error_code=0, base_offset=2**40, log_append_time_ms=1, log_start_offset=5),
                    partition(
                        index=1,
                        error_code=6,
                        base_offset=-1,
                        record_errors=[
                            partition.BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="no key"),
                            partition.BatchIndexAndErrorMessage(batch_index=4),
                        ],
                        error_message="not here",
                        current_leader=partition.LeaderIdAndEpoch(leader_id=2, leader_epoch=9),
                    ),
                ],
            )
        ],
        throttle_time_ms=12,
        node_endpoints=[ProduceResponse.NodeEndpoint(node_id=2, host="b2", port=9092, rack="r")],
    )


def fetch_request():
    topic = FetchRequest.FetchTopic
    return FetchRequest(
        cluster_id="cluster",
        replica_id=3,
        replica_state=FetchRequest.ReplicaState(replica_id=3, replica_epoch=4),
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=1,
        session_id=11,
        session_epoch=2,
        topics=[
            topic(
                topic="payments",
                topic_id=TOPIC_ID,
                partitions=[
                    topic.FetchPartition(
                        partition=1,
                        current_leader_epoch=5,
                        fetch_offset=2**33,
                        last_fetched_epoch=4,
                        log_start_offset=17,
                        partition_max_bytes=1 << 16,
                        replica_directory_id=TOPIC_ID,
                        high_watermark=99,
                    ),
                    topic.FetchPartition(partition=2, fetch_offset=0, partition_max_bytes=1),
                ],
            )
        ],
        forgotten_topics_data=[FetchRequest.ForgottenTopic(topic="old", topic_id=TOPIC_ID, partitions=[0, 1])],
        rack_id="r1",
    )


def fetch_response():
    topic = FetchResponse.FetchableTopicResponse
    partition = topic.PartitionData
    return FetchResponse(
        throttle_time_ms=1,
        error_code=70,
        session_id=11,
        responses=[
            topic(
                topic="payments",
                topic_id=TOPIC_ID,
                partitions=[
                    partition(
                        partition_index=1,
                        error_code=0,
                        high_watermark=100,
                        last_stable_offset=90,
                        log_start_offset=10,
                        aborted_transactions=[partition.AbortedTransaction(producer_id=2**50, first_offset=80)],
                        preferred_read_replica=2,
                        records=RECORDS,
                    ),
                    partition(
                        partition_index=2,
                        error_code=74,
                        high_watermark=-1,
                        diverging_epoch=partition.EpochEndOffset(epoch=3, end_offset=44),
                        current_leader=partition.LeaderIdAndEpoch(leader_id=1, leader_epoch=5),
                        snapshot_id=partition.SnapshotId(end_offset=9, epoch=8),
                    ),
                ],
            )
        ],
        node_endpoints=[FetchResponse.NodeEndpoint(node_id=1, host="b1", port=19092)],
    )


def metadata_request():
    topic = MetadataRequest.MetadataRequestTopic
    return MetadataRequest(
        topics=[topic(name="payments", topic_id=TOPIC_ID), topic(name="größen")],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


def metadata_response():
    topic = MetadataResponse.MetadataResponseTopic
    return MetadataResponse(
        throttle_time_ms=3,
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=1, host="b1", port=9092, rack="r1"),
            MetadataResponse.MetadataResponseBroker(node_id=2, host="b2", port=9093),
        ],
        cluster_id="cluster",
        controller_id=2,
        topics=[
            topic(
                error_code=0,
                name="payments",
                topic_id=TOPIC_ID,
                is_internal=True,
                partitions=[
                    topic.MetadataResponsePartition(
                        error_code=5,
                        partition_index=3,
                        leader_id=-1,
                        leader_epoch=7,
                        replica_nodes=[1, 2],
                        isr_nodes=[2],
                        offline_replicas=[1],
                    )
                ],
                topic_authorized_operations=0xFF,
            )
        ],
        cluster_authorized_operations=0x1F,
        error_code=129,
    )


def list_offsets_request():
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition(partition_index=1, current_leader_epoch=4, timestamp=1_700_000_000_000)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=1, topics=[topic(name="payments", partitions=[partition])], timeout_ms=5000
    )


def list_offsets_response():
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    partition = topic.ListOffsetsPartitionResponse(
        partition_index=1, error_code=0, timestamp=1_700_000_000_001, offset=42, leader_epoch=4
    )
    return ListOffsetsResponse(throttle_time_ms=2, topics=[topic(name="payments", partitions=[partition])])


def api_versions_request():
    return ApiVersionsRequest(client_software_name="oncelog", client_software_version="0.1.0")


def api_versions_response():
    response = ApiVersionsResponse
    return response(
        error_code=0,
        api_keys=[
            response.ApiVersion(api_key=0, min_version=0, max_version=13),
            response.ApiVersion(api_key=18, min_version=0, max_version=4),
        ],
        throttle_time_ms=6,
        supported_features=[response.SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2)],
        finalized_features_epoch=31,
        finalized_features=[
            response.FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=1)
        ],
        zk_migration_ready=True,
    )


def create_topics_request():
    topic = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[
            topic(
                name="payments",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[topic.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])],
                configs=[
                    topic.CreatableTopicConfig(name="cleanup.policy", value="compact"),
                    topic.CreatableTopicConfig(name="retention.ms", value=None),
                ],
            )
        ],
        timeout_ms=1500,
        validate_only=True,
    )


def create_topics_response():
    result = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(
        throttle_time_ms=8,
        topics=[
            result(
                name="payments",
                topic_id=TOPIC_ID,
                error_code=0,
                num_partitions=3,
                replication_factor=2,
                configs=[
                    result.CreatableTopicConfigs(
                        name="k", value=None, read_only=True, config_source=5, is_sensitive=True
                    )
                ],
            ),
            result(name="bad", error_code=17, error_message="no such name", topic_config_error_code=29),
        ],
    )


def join_group_request():
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id="m-1",
        group_instance_id="static-1",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\x00\x01")],
        reason="first poll",
    )


def join_group_response():
    member = JoinGroupResponse.JoinGroupResponseMember
    return JoinGroupResponse(
        throttle_time_ms=1,
        error_code=0,
        generation_id=4,
        protocol_type="consumer",
        protocol_name="range",
        leader="m-1",
        skip_assignment=True,
        member_id="m-1",
        members=[member(member_id="m-1", group_instance_id="static-1", metadata=b"\x00\x01")],
    )


def offset_fetch_request():
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="payments", partition_indexes=[0, 1])],
        groups=[
            group(
                group_id="g",
                member_id="m-1",
                member_epoch=3,
                topics=[group.OffsetFetchRequestTopics(name="payments", topic_id=TOPIC_ID, partition_indexes=[0, 1])],
            ),
            group(group_id="h", topics=None),
        ],
        require_stable=True,
    )


def offset_fetch_response():
    topic = OffsetFetchResponse.OffsetFetchResponseTopic
    group = OffsetFetchResponse.OffsetFetchResponseGroup
    committed = {"partition_index": 1, "committed_offset": 77, "committed_leader_epoch": 2, "error_code": 0}
    return OffsetFetchResponse(
        throttle_time_ms=1,
        topics=[
            topic(name="payments", partitions=[topic.OffsetFetchResponsePartition(metadata="by hand", **committed)])
        ],
        error_code=15,
        groups=[
            group(
                group_id="g",
                topics=[
                    group.OffsetFetchResponseTopics(
                        name="payments",
                        topic_id=TOPIC_ID,
                        partitions=[
                            group.OffsetFetchResponseTopics.OffsetFetchResponsePartitions(metadata=None, **committed)
                        ],
                    )
                ],
                error_code=15,
            )
        ],
    )


def end_txn_request():
    return EndTxnRequest(transactional_id="payments-1", producer_id=2**40, producer_epoch=3, committed=True)


def end_txn_response():
    return EndTxnResponse(throttle_time_ms=1, error_code=51, producer_id=2**40, producer_epoch=4)


MESSAGES = [
    produce_request(),
    produce_response(),
    fetch_request(),
    fetch_response(),
    metadata_request(),
    metadata_response(),
    list_offsets_request(),
    list_offsets_response(),
    api_versions_request(),
    api_versions_response(),
    create_topics_request(),
    create_topics_response(),
    join_group_request(),
    join_group_response(),
    offset_fetch_request(),
    offset_fetch_response(),
    end_txn_request(),
    end_txn_response(),
]


def their_class(ours):
    """Return kafka-python's class for one of oncelog's messages."""
    for module in ("producer", "consumer", "metadata", "admin"):
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), type(ours).__name__, None)
        if found is not None:
            return found
    raise LookupError(type(ours).__name__)


def to_theirs(ours, theirs, version):
    """Convert one of oncelog's messages or structs to that of kafka-python. Tagged fields that oncelog does not send
    are omitted.
    """
    values = {}
    for field in sent_fields(ours, version):
        value = getattr(ours, field.name)
        if isinstance(value, list) and field.struct:
            value = [to_theirs(item, getattr(theirs, field.struct.__name__), version) for item in value]
        elif field.struct and value is not None:
            value = to_theirs(value, getattr(theirs, field.struct.__name__), version)
        values[their_name(field)] = their_value(field, value)
    return theirs(version=version, **values)


def assert_same(ours, theirs, version):
    """Check that every field of the version has the same value."""
    for field in sent_fields(ours, version):
        value, other = getattr(ours, field.name), getattr(theirs, their_name(field))
        if isinstance(value, list) and field.struct:
            for our_item, their_item in zip(value, other, strict=True):
                assert_same(our_item, their_item, version)
        elif field.struct and value is not None:
            assert_same(value, other, version)
        else:
            assert their_value(field, value) == other, field.name


def sent_fields(ours, version):
    for field in fields_of(type(ours)):
        is_unset_tag = version in field.tagged and getattr(ours, field.name) == field.default
        if version in field.versions and not is_unset_tag:
            yield field


def their_name(field):
    return field.name.removeprefix("topic_").removeprefix("cluster_") if is_bit_field(field) else field.name


def is_bit_field(field):
    return field.type_name == "int32" and field.name.endswith("authorized_operations")


def their_value(field, value):
    """kafka-python represents the zero uuid as None, and authorized operations in responses as sets of bit numbers."""
    if field.type_name == "uuid":
        return uuid.UUID(bytes=value) if value != ZERO_UUID else None
    if is_bit_field(field):
        return {bit for bit in range(32) if value >> bit & 1}
    return value


@pytest.mark.parametrize("ours", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_version_has_the_bytes_of_kafka_python(ours):
    theirs = their_class(ours)
    versions = schema_of(type(ours)).versions
    for version in range(versions.low, min(versions.high, theirs.max_version) + 1):
        data = codec(type(ours), version).encode(ours)
        assert data == to_theirs(ours, theirs, version).encode(), f"version {version}"
        assert_same(ours, theirs.decode(data, version=version), version)
        decoded, end = codec(type(ours), version).decode_from(data)
        assert end == len(data)
        assert codec(type(ours), version).encode(decoded) == data


@pytest.mark.parametrize("version", [1, 2])
def test_the_request_header_has_the_bytes_of_kafka_python(version):
    from kafka.protocol.api_header import RequestHeader as TheirHeader

    fields = {"request_api_key": ApiKey.FETCH, "request_api_version": 12, "correlation_id": 5, "client_id": "me"}
    theirs = TheirHeader(**fields).encode(flexible=version == 2)
    assert codec(RequestHeader, version).encode(RequestHeader(**fields)) == theirs


def test_produce_v3_has_the_known_bytes():
    """One message with its bytes written out by hand, in case both codecs are wrong in the same way."""
    topic = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        acks=1,
        timeout_ms=100,
        topic_data=[topic(name="t", partition_data=[topic.PartitionProduceData(index=2, records=b"\xab\xcd")])],
    )
    assert codec(ProduceRequest, 3).encode(request) == bytes.fromhex(
        "ffff"  # transactional_id: null
        "0001 00000064"  # acks, timeout_ms
        "00000001 0001 74"  # one topic, "t"
        "00000001 00000002 00000002 abcd"  # one partition, 2, with 2 bytes of records
    )
    assert codec(ProduceRequest, 9).encode(request) == bytes.fromhex(
        "00"  # transactional_id is null, in compact form
        "0001 00000064"
        "02 02 74"  # compact lengths are encoded as n + 1
        "02 00000002 03 abcd 00"  # the partition ends with an empty tag buffer
        "00 00"  # the topic and the request end with an empty tag buffer, too
    )
