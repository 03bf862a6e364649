"""Tests three broker processes with one controller on a real ZooKeeper: only the controller changes topics, and another
broker takes over when it dies.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_cluster import METADATA_VERSION, BrokerCluster
from foreign_clients import Record, eventually
from librdkafka_client import Librdkafka
from raw_client import RawClient

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.alter_partition import AlterPartitionRequest
from oncelog_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from oncelog_protocol.messages.create_partitions import CreatePartitionsRequest
from oncelog_protocol.messages.create_topics import CreateTopicsRequest
from oncelog_protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog_protocol.messages.describe_configs import DescribeConfigsRequest, ResourceType
from oncelog_protocol.messages.elect_leaders import ElectLeadersRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType, FindCoordinatorRequest
from oncelog_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from oncelog_protocol.messages.metadata import MetadataRequest

SESSION = {"zookeeper.session.timeout.ms": "4000"}
"""A short session timeout, for tests that kill the controller."""
CREATE_TOPICS_VERSION = 7


@pytest.fixture
def mortal_brokers(new_root: str, tmp_path: Path) -> Iterator[BrokerCluster]:
    """Yield three brokers that a test may kill."""
    cluster = BrokerCluster(tmp_path, new_root, size=3, settings=SESSION)
    with cluster:
        yield cluster
    cluster.check_logs()


@pytest.fixture
def new_root(request: pytest.FixtureRequest) -> str:
    chroot: str = request.getfixturevalue("chroots")()
    return chroot


def described(cluster: BrokerCluster, node_id: int, topic: str | None = None, create: bool = False) -> Any:
    topics = [] if topic is None else [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    return cluster.client(node_id).call(request, ApiKey.METADATA, METADATA_VERSION)


def controller_of(cluster: BrokerCluster, asked: int) -> int:
    return int(described(cluster, asked).controller_id)


def leaders(cluster: BrokerCluster, asked: int, topic: str) -> dict[int, tuple[int, int]]:
    """Return partition -> (leader, leader epoch), as this broker knows them."""
    (found,) = described(cluster, asked, topic).topics
    return {each.partition_index: (each.leader_id, each.leader_epoch) for each in found.partitions}


def by_hand(name: str, *replicas: list[int]) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic
    assignments = [
        topic.CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
    ]
    wanted = topic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[])
    return CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)


def create(cluster: BrokerCluster, node_id: int, request: CreateTopicsRequest) -> int:
    answer = cluster.client(node_id).call(request, ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)
    return int(answer.topics[0].error_code)


def test_s98_all_brokers_name_one_controller_and_pass_on_to_it_what_clients_ask(three_brokers: BrokerCluster) -> None:
    controller = controller_of(three_brokers, 1)
    assert {controller_of(three_brokers, broker) for broker in three_brokers.brokers} == {controller}
    other = next(broker for broker in three_brokers.brokers if broker != controller)
    client = three_brokers.client(other)
    for version in range(2, CREATE_TOPICS_VERSION + 1):
        answer = client.call(by_hand(f"elsewhere{version}", [other]), ApiKey.CREATE_TOPICS, version)
        assert answer.topics[0].error_code == ErrorCode.NONE
        assert leaders(three_brokers, other, f"elsewhere{version}") == {0: (other, 0)}, "known where it was asked for"
    assert create(three_brokers, other, by_hand("elsewhere2", [1])) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert create(three_brokers, other, by_hand("nowhere", [99])) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    grown = CreatePartitionsRequest.CreatePartitionsTopic(name="elsewhere2", count=3, assignments=None)
    request: Any = CreatePartitionsRequest(topics=[grown], timeout_ms=30_000, validate_only=False)
    assert client.call(request, ApiKey.CREATE_PARTITIONS, 3).results[0].error_code == ErrorCode.NONE
    assert len(leaders(three_brokers, other, "elsewhere2")) == 3
    request = ListPartitionReassignmentsRequest(topics=None)
    assert client.call(request, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0).error_code == ErrorCode.NONE
    moved = AlterPartitionReassignmentsRequest.ReassignableTopic.ReassignablePartition(
        partition_index=0, replicas=[controller]
    )
    request = AlterPartitionReassignmentsRequest(
        topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name="elsewhere3", partitions=[moved])]
    )
    answer = client.call(request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    eventually(lambda: leaders(three_brokers, other, "elsewhere3")[0][0] == controller, "the partition has moved")
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=30_000)
    assert client.call(request, ApiKey.ELECT_LEADERS, 2).error_code == ErrorCode.NONE
    for version in (1, 5, 6):
        name = f"elsewhere{version}" if version > 1 else "elsewhere2"
        by_name = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=bytes(16))
        request = DeleteTopicsRequest(topics=[by_name], topic_names=[name], timeout_ms=30_000)
        assert client.call(request, ApiKey.DELETE_TOPICS, version).responses[0].error_code == ErrorCode.NONE
        again = client.call(request, ApiKey.DELETE_TOPICS, version).responses[0].error_code
        assert again == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = AlterPartitionRequest(broker_id=other, broker_epoch=1, topics=[])
    assert client.call(request, ApiKey.ALTER_PARTITION, 3).error_code == ErrorCode.NOT_CONTROLLER


def test_a_foreign_client_creates_writes_and_reads_over_all_brokers(three_brokers: BrokerCluster) -> None:
    controller = controller_of(three_brokers, 1)
    other = next(broker for node, broker in three_brokers.brokers.items() if node != controller)
    client = Librdkafka(other.address)
    client.create_topic("everywhere", partitions=6)
    assert {leader for leader, _ in leaders(three_brokers, controller, "everywhere").values()} == {1, 2, 3}
    for partition in range(6):
        client.produce("everywhere", [Record(b"%d" % partition)], partition=partition)
    for partition in range(6):
        (record,) = client.consume("everywhere", 1, partition=partition)
        assert record.value == b"%d" % partition


def test_any_broker_has_a_topic_created_at_its_first_use(three_brokers: BrokerCluster) -> None:
    for broker in three_brokers.brokers:
        name = f"first-use-at-{broker}"
        (answer,) = described(three_brokers, broker, name, create=True).topics
        assert answer.error_code == 0
        assert len(answer.partitions) == 1


def retention_of(client: Any, topic: str) -> str | None:
    """Return retention.ms of a topic, as this broker knows it."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=["retention.ms"]
    )
    (result,) = client.call(DescribeConfigsRequest(resources=[resource]), ApiKey.DESCRIBE_CONFIGS, 4).results
    return next(config.value for config in result.configs)


def test_any_broker_changes_settings_of_topics(three_brokers: BrokerCluster) -> None:
    three_brokers.create_topic("settings", 1)
    for broker in three_brokers.brokers:
        retention_ms = str(1000 + broker)
        three_brokers.client(broker).alter_topic("settings", retention_ms=retention_ms)
        for each in three_brokers.brokers:
            client = three_brokers.client(each)
            eventually(lambda c=client, v=retention_ms: retention_of(c, "settings") == v, f"broker {each} has it")


def test_when_the_controller_is_killed_another_one_elects_and_takes_requests(mortal_brokers: BrokerCluster) -> None:
    """Partitions whose only replica was on the dead broker wait until it returns; partitions with another in-sync
    replica continue. When the broker returns, it is no longer the controller.
    """
    first = controller_of(mortal_brokers, 1)
    others = [broker for broker in mortal_brokers.brokers if broker != first]
    assert create(mortal_brokers, first, by_hand("alone", [first], [others[1]])) == 0
    assert create(mortal_brokers, first, by_hand("both", [first, others[0]])) == 0
    mortal_brokers.kill(first)
    eventually(lambda: controller_of(mortal_brokers, others[0]) in others, "another broker is controller")
    second = controller_of(mortal_brokers, others[0])
    eventually(
        lambda: leaders(mortal_brokers, others[0], "alone") == {0: (-1, 1), 1: (others[1], 0)}, "it has no leader"
    )
    eventually(lambda: leaders(mortal_brokers, others[0], "both") == {0: (others[0], 1)}, "the other one leads")
    assert create(mortal_brokers, second, by_hand("u", [others[0]])) == 0
    mortal_brokers.restart(first)
    eventually(
        lambda: leaders(mortal_brokers, second, "alone") == {0: (first, 2), 1: (others[1], 0)}, "the broker is back"
    )
    assert leaders(mortal_brokers, second, "both") == {0: (others[0], 1)}
    assert controller_of(mortal_brokers, first) == second


def test_internal_topics_wait_for_as_many_brokers_as_they_need(new_root: str, tmp_path: Path) -> None:
    """A transactional client waits at the first broker of a cluster until all three brokers are running."""
    three = {"transaction.state.log.replication.factor": "3", "offsets.topic.replication.factor": "3"}
    cluster = BrokerCluster(tmp_path, new_root, size=3, settings=three)

    def coordinator(asked: int, kind: CoordinatorType) -> tuple[int, str]:
        request = FindCoordinatorRequest(key="k", key_type=kind)
        with RawClient(cluster.brokers[asked].port) as client:
            answer = client.call(request, ApiKey.FIND_COORDINATOR, 2)
        return answer.error_code, answer.error_message

    try:
        for broker in (1, 2):
            cluster.brokers[broker].start()
            for kind in (CoordinatorType.TRANSACTION, CoordinatorType.GROUP):
                code, why = coordinator(1, kind)
                assert (code, "needs 3 replicas" in why) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, True)
        cluster.brokers[3].start()
        for kind, topic in (
            (CoordinatorType.TRANSACTION, "__transaction_state"),
            (CoordinatorType.GROUP, "__consumer_offsets"),
        ):
            eventually(lambda: coordinator(2, kind)[0] == 0, "there is a coordinator")  # noqa: B023
            (found,) = described(cluster, 2, topic).topics
            assert {tuple(sorted(each.replica_nodes)) for each in found.partitions} == {(1, 2, 3)}
    finally:
        cluster.__exit__()
    cluster.check_logs()


@pytest.mark.soak
def test_a_thousand_partitions_are_created_and_re_elected(
    mortal_brokers: BrokerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test creates the partitions, elects leaders again when the controller is killed, and deletes the partitions;
    it prints the duration of each step.
    """
    first = controller_of(mortal_brokers, 1)
    second = next(broker for broker in mortal_brokers.brokers if broker != first)
    spread = [[1 + p % 3, 1 + (p + 1) % 3] for p in range(1000)]
    taken = {}

    def all_led(by: set[int]) -> bool:
        found = leaders(mortal_brokers, second, "many")
        return len(found) == 1000 and {leader for leader, _ in found.values()} == by

    began = time.monotonic()
    assert create(mortal_brokers, first, by_hand("many", *spread)) == 0
    eventually(lambda: all_led({1, 2, 3}), "all brokers lead their part")
    taken["created"] = time.monotonic() - began
    began = time.monotonic()
    mortal_brokers.kill(first)
    eventually(lambda: all_led({1, 2, 3} - {first}), "the others lead the part of the one that was killed")
    taken["controller killed"] = time.monotonic() - began
    began = time.monotonic()
    mortal_brokers.restart(first)
    taken["broker restarted"] = time.monotonic() - began
    began = time.monotonic()
    mortal_brokers.delete_topic("many")
    taken["deleted"] = time.monotonic() - began
    with capsys.disabled():
        print("\n1,000 partitions of two replicas:", {what: round(seconds, 2) for what, seconds in taken.items()})
