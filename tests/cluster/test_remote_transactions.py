"""Tests transactions whose coordinator and partitions are on different brokers, so that verification, registration and
markers go over the network, while brokers die. Each partition has one replica, so that leaders do not change.
"""

from __future__ import annotations

from typing import Any

import pytest
from broker_cluster import BrokerCluster, ClusterTransactions
from foreign_clients import eventually
from raw_client import RawClient
from raw_transactions import BOTH, committed_offset, content, is_stable

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest

PARTITIONS = 6


class Stage:
    """A topic with partitions on all brokers, and a transactional id that broker 1 coordinates."""

    def __init__(self, cluster: BrokerCluster, topic: str, is_v2: bool) -> None:
        self.cluster, self.topic = cluster, topic
        self.leaders = cluster.create_topic(topic, PARTITIONS)
        self.txn = ClusterTransactions(cluster, cluster.key_coordinated_by(1, topic), is_v2=is_v2)
        self.txn.know(topic, self.leaders)
        self.elsewhere = next(index for index, leader in self.leaders.items() if leader != 1)

    def leader(self, partition: int) -> Any:
        return self.cluster.client(self.leaders[partition])

    def contents(self) -> list[list[str]]:
        return [content(self.leader(index), self.topic, index) for index in range(PARTITIONS)]

    def until_stable(self) -> None:
        eventually(
            lambda: all(is_stable(self.leader(index), self.topic, index) for index in range(PARTITIONS)),
            "no transaction holds back readers",
        )

    def end_until_done(self, commits: bool = True, *, asking: Any) -> None:
        """Repeat the request, as a client does whose response is lost, until the transaction is complete."""
        eventually(lambda: self.txn.end(commits, asking=asking) == 0, "the transaction is complete")


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@BOTH
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_s39_a_transaction_spans_partitions_on_all_brokers(
    three_brokers: BrokerCluster, topic: str, is_v2: bool, commits: bool
) -> None:
    stage = Stage(three_brokers, topic, is_v2)
    assert set(stage.leaders.values()) == {1, 2, 3}
    stage.txn.take_over()
    for _ in range(3):
        stage.txn.write(topic, *range(PARTITIONS))
        assert stage.txn.end(commits) == 0
        if not is_v2:
            stage.end_until_done(commits, asking=stage.txn.producer)
    stage.until_stable()
    end = "commit" if commits else "abort"
    assert stage.contents() == [["data", end] * 3] * PARTITIONS


@BOTH
def test_s37_offsets_are_committed_to_a_group_on_another_broker(
    three_brokers: BrokerCluster, topic: str, is_v2: bool
) -> None:
    stage = Stage(three_brokers, topic, is_v2)
    group = three_brokers.key_coordinated_by(2, f"group-{topic}", CoordinatorType.GROUP)
    txn, groups = stage.txn, three_brokers.client(2)
    txn.take_over()
    txn.write(topic, stage.elsewhere)

    def commit(offset: int) -> int:
        txn.client = groups
        codes: list[int] = []

        # repeat the request after retriable errors, which a broker returns if its session may have ended on a busy
        # machine
        def is_answered() -> bool:
            codes.append(txn.commit_offset(group, topic, offset, version=5 if is_v2 else 3))
            return not ErrorCode.of(codes[-1]).retriable

        try:
            eventually(is_answered, "the offsets are committed, or refused")
            return codes[-1]
        finally:
            txn.reconnect()

    if not is_v2:
        assert commit(3) == ErrorCode.INVALID_TXN_STATE, "the group is not in the transaction"
        assert txn.add_offsets(group) == 0
    assert commit(4) == 0
    assert committed_offset(groups, group, topic) == (0, -1)
    assert txn.end() == 0
    eventually(lambda: committed_offset(groups, group, topic, stable=True) == (0, 4), "the offset is committed")
    stage.until_stable()


def test_e2_a_record_that_arrives_after_its_transaction_is_refused(three_brokers: BrokerCluster, topic: str) -> None:
    """The leader asks the coordinator, which is on another broker, and learns that the partition is in no
    transaction.
    """
    stage = Stage(three_brokers, topic, is_v2=False)
    txn, where = stage.txn, stage.elsewhere
    txn.take_over()
    txn.write(topic, where)
    assert txn.end(False) == 0
    stage.end_until_done(False, asking=txn.producer)
    assert txn.produce(topic, where, sequence=1) == ErrorCode.INVALID_TXN_STATE
    assert content(stage.leader(where), topic, where) == ["data", "abort"]
    assert is_stable(stage.leader(where), topic, where)


@BOTH
def test_e3_a_marker_between_verification_and_append_is_respected(
    three_brokers: BrokerCluster, topic: str, is_v2: bool
) -> None:
    """The coordinator is paused while the leader asks it whether a transaction is open, and a client ends the
    transaction at the leader.
    """
    stage = Stage(three_brokers, topic, is_v2)
    txn, where = stage.txn, stage.elsewhere
    producer = txn.take_over()
    if not is_v2:
        assert txn.add(topic, where) == 0
    leader = stage.leader(where)
    # The first Produce request of a broker waits for its codec to load; this request takes that wait, so that the next
    # request does not have to.
    leader.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[]), ApiKey.PRODUCE, txn.produce_version)
    with three_brokers.paused(1):
        request = txn.produce_request(topic, where, 0)
        leader.send(request, ApiKey.PRODUCE, txn.produce_version)
        assert not leader.is_readable()
        asked = WriteTxnMarkersRequest.WritableTxnMarker
        marker = asked(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=[asked.WritableTxnMarkerTopic(name=topic, partition_indexes=[where])],
            coordinator_epoch=0,
        )
        with RawClient(three_brokers.brokers[stage.leaders[where]].port) as tool:
            (written,) = tool.call(WriteTxnMarkersRequest(markers=[marker]), ApiKey.WRITE_TXN_MARKERS, 1).markers
            assert written.topics[0].partitions[0].error_code == 0
    answer = leader.receive()
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert content(leader, topic, where) == ["abort"]
    assert is_stable(leader, topic, where)


@BOTH
def test_a_topic_that_is_deleted_delays_nothing(three_brokers: BrokerCluster, topic: str, is_v2: bool) -> None:
    stage = Stage(three_brokers, topic, is_v2)
    gone = f"{topic}-gone"
    stage.txn.know(gone, three_brokers.create_topic(gone, 3))
    producer = stage.txn.take_over()
    stage.txn.write(topic, 0)
    stage.txn.write(gone, 0, 1, 2)
    three_brokers.delete_topic(gone)
    assert stage.txn.end() == 0
    stage.end_until_done(asking=producer)
    stage.until_stable()
