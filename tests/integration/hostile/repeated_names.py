"""Sends the same name many times in one request, or many different names: small requests with large responses."""

from __future__ import annotations

from raw_client import PRODUCE_VERSION, frame, produce_request
from raw_transactions import RawTransactions

from hostile.client import HostileClient
from hostile.scene import TIMESTAMP, Scene
from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.describe_configs import DescribeConfigsRequest, ResourceType
from oncelog_protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog_protocol.messages.describe_producers import DescribeProducersRequest
from oncelog_protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.join_group import JoinGroupRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.offset_fetch import OffsetFetchRequest
from oncelog_protocol.records.builder import build_batch
from oncelog_protocol.records.record import Record

PARTITIONS = 1000
PRODUCERS = 500


def _committed_offsets(scene: Scene, _: int) -> None:
    scene.make_topic("wide", PARTITIONS)
    scene.find_coordinator("group", CoordinatorType.GROUP)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partitions = [
        topic.OffsetCommitRequestPartition(partition_index=partition, committed_offset=5, committed_metadata="")
        for partition in range(PARTITIONS)
    ]
    request = OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[topic(name="wide", partitions=partitions)],
    )
    scene.client().call(request, ApiKey.OFFSET_COMMIT, 7)


def _offset_fetch(scene: Scene, _: None, size: int) -> str:
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="group", topics=None)
    return scene.ask(OffsetFetchRequest(groups=[group] * size, require_stable=False), ApiKey.OFFSET_FETCH, 8)


def _large_member(scene: Scene, _: int) -> None:
    scene.find_coordinator("group", CoordinatorType.GROUP)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="p", metadata=b"m" * 500_000)
    request = JoinGroupRequest(
        group_id="group",
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=1000,
        member_id="",
        group_instance_id="instance",
        protocol_type="x",
        protocols=[protocol],
    )
    assert scene.client().call(request, ApiKey.JOIN_GROUP, 5).error_code == 0


def _describe_groups(scene: Scene, _: None, size: int) -> str:
    request = DescribeGroupsRequest(groups=["group"] * size, include_authorized_operations=False)
    return scene.ask(request, ApiKey.DESCRIBE_GROUPS, 5)


def _describe_configs(scene: Scene, _: None, size: int) -> str:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name="wide", configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource] * size, include_synonyms=True, include_documentation=True)
    return scene.ask(request, ApiKey.DESCRIBE_CONFIGS, 4)


def _many_producers(scene: Scene, _: int) -> None:
    scene.make_topic("wide")
    client = scene.client()
    for number in range(PRODUCERS):
        batch = build_batch(
            [Record(0, TIMESTAMP, None, b"v", [])], producer_id=1000 + number, producer_epoch=0, base_sequence=0
        )
        client.exchange(frame(produce_request("wide", 0, batch), ApiKey.PRODUCE, PRODUCE_VERSION))


def _describe_producers(scene: Scene, _: None, size: int) -> str:
    topic = DescribeProducersRequest.TopicRequest(name="wide", partition_indexes=[0] * size)
    return scene.ask(DescribeProducersRequest(topics=[topic]), ApiKey.DESCRIBE_PRODUCERS, 0)


def _wide_transaction(scene: Scene, _: int) -> None:
    scene.make_topic("wide", PARTITIONS)
    client = scene.client()
    transactions = RawTransactions(client, "tx")
    transactions.take_over()
    client.call(transactions.add_request("wide", *range(PARTITIONS)), ApiKey.ADD_PARTITIONS_TO_TXN, 3)


def _describe_transactions(scene: Scene, _: None, size: int) -> str:
    request = DescribeTransactionsRequest(transactional_ids=["tx"] * size)
    return scene.ask(request, ApiKey.DESCRIBE_TRANSACTIONS, 0)


def _fetch_session(scene: Scene, _: None, size: int) -> str:
    """Open an incremental fetch session with partitions of topics that do not exist."""
    client = scene.client()
    topic = FetchRequest.FetchTopic
    session, epoch, error = 0, 0, 0
    for number in range(size):
        partitions = [
            topic.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1)
            for partition in range(45_000)
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_id=session,
            session_epoch=epoch,
            topics=[topic(topic=f"no-such-topic-{number}", partitions=partitions)],
        )
        try:
            answer = client.call(request, ApiKey.FETCH, 11)
        except OSError as failure:
            return f"request {number + 1}: {failure!r}"
        if error := answer.error_code:
            break
        session, epoch = answer.session_id, epoch + 1
    return f"{epoch} requests of 45,000 unknown partitions into one fetch session, error {error}"


COORDINATED = {"group.initial.rebalance.delay.ms": "0"}

CLIENTS = (
    HostileClient(
        "one group's offsets, many times",
        _offset_fetch,
        size=1000,
        small=200,
        prepare=_committed_offsets,
        settings=COORDINATED,
    ),
    HostileClient(
        "one group described many times",
        _describe_groups,
        size=400,
        small=200,
        prepare=_large_member,
        settings=COORDINATED,
    ),
    HostileClient(
        "one topic's configuration, many times",
        _describe_configs,
        size=2000,
        small=500,
        prepare=lambda scene, size: scene.make_topic("wide"),
    ),
    HostileClient(
        "one partition's producers, many times",
        _describe_producers,
        size=5000,
        small=500,
        prepare=_many_producers,
    ),
    HostileClient(
        "one transaction described many times", _describe_transactions, size=3000, small=500, prepare=_wide_transaction
    ),
    HostileClient("a fetch session of unknown partitions", _fetch_session, size=8, small=2),
)
