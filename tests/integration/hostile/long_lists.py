"""Sends requests with tens of thousands of elements, each of which causes little work."""

from __future__ import annotations

from typing import Any

from hostile.client import HostileClient
from hostile.scene import Scene
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.messages.describe_configs import ResourceType
from oncelog_protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.incremental_alter_configs import ConfigOperation, IncrementalAlterConfigsRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest


def _create_topics(scene: Scene, _: None, count: int) -> str:
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=f"new-{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for number in range(count)
    ]
    return _ask(scene, CreateTopicsRequest(topics=topics, validate_only=True), ApiKey.CREATE_TOPICS, 5, count)


def _delete_topics(scene: Scene, _: None, count: int) -> str:
    request = DeleteTopicsRequest(topic_names=[f"no-such-topic-{number}" for number in range(count)], timeout_ms=1000)
    return _ask(scene, request, ApiKey.DELETE_TOPICS, 5, count)


def _alter_configs(scene: Scene, _: None, count: int) -> str:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name="retention.ms", config_operation=ConfigOperation.SET, value="60000")
    altered = resource(resource_type=ResourceType.TOPIC, resource_name="altered", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[altered] * count, validate_only=True)
    return _ask(scene, request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, count)


def _describe_groups(scene: Scene, _: None, count: int) -> str:
    request = DescribeGroupsRequest(groups=[f"no-such-group-{number}" for number in range(count)])
    return _ask(scene, request, ApiKey.DESCRIBE_GROUPS, 5, count)


def _offset_fetch(scene: Scene, _: None, count: int) -> str:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    groups = [group(group_id=f"no-such-group-{number}", topics=None) for number in range(count)]
    return _ask(scene, OffsetFetchRequest(groups=groups, require_stable=False), ApiKey.OFFSET_FETCH, 8, count)


def _write_markers(scene: Scene, _: None, count: int) -> str:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = marker.WritableTxnMarkerTopic(name="marked", partition_indexes=[0] * count)
    wanted = marker(producer_id=1, producer_epoch=0, transaction_result=False, topics=[topic], coordinator_epoch=0)
    return _ask(scene, WriteTxnMarkersRequest(markers=[wanted]), ApiKey.WRITE_TXN_MARKERS, 1, count)


def _ask(scene: Scene, request: Any, key: ApiKey, version: int, count: int) -> str:
    return f"{count:,} elements, {scene.ask(request, key, version)}"


def _group_coordinator(scene: Scene, _: int) -> None:
    scene.find_coordinator("group", CoordinatorType.GROUP)


CLIENTS = (
    HostileClient("as many topics to be made as may be", _create_topics, size=10_000, small=2500),
    HostileClient("many topics to be made", _create_topics, size=49_000, small=20_000),
    HostileClient("many topics to be deleted", _delete_topics, size=49_000, small=20_000),
    HostileClient(
        "one topic's configuration altered many times",
        _alter_configs,
        size=20_000,
        small=10_000,
        prepare=lambda scene, size: scene.make_topic("altered"),
    ),
    HostileClient("many groups described", _describe_groups, size=49_000, small=20_000, prepare=_group_coordinator),
    HostileClient("many groups' offsets", _offset_fetch, size=49_000, small=20_000, prepare=_group_coordinator),
    HostileClient(
        "one partition's marker, many times",
        _write_markers,
        size=49_000,
        small=20_000,
        prepare=lambda scene, size: scene.make_topic("marked"),
    ),
)
