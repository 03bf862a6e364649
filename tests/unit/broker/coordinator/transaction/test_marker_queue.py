"""The queue of transaction markers: the destination and retry time of each marker when leaders move, requests fail, or
this broker stops coordinating the transaction.
"""

from __future__ import annotations

import pytest

from oncelog_broker.coordinator.transaction.machine import TransactionEnd
from oncelog_broker.coordinator.transaction.marker_queue import (
    MAX_RETRY_SECONDS,
    RETRY_SECONDS,
    Decision,
    MarkerQueue,
    Outcome,
    WaitingMarker,
)
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.model.image import Broker, ClusterImage, PartitionState, Topic
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.producer_id import ProducerIdAndEpoch

FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED
NOBODY = -1


class Cluster:
    """Brokers 1 to 3; the test chooses the leader of each partition of topic "t"."""

    def __init__(self, *leaders: int) -> None:
        self.image = ClusterImage("")
        for broker_id in (1, 2, 3):
            self.image = self.image.with_broker(Broker(broker_id, 1, ()))
        self.queue = MarkerQueue(self)
        self.is_current = True
        self.ended: list[tuple[str, Outcome]] = []
        self.lead(*leaders)

    def lead(self, *leaders: int) -> None:
        states = {index: PartitionState((leader,), (leader,), leader, 1, 1) for index, leader in enumerate(leaders)}
        self.image = self.image.with_topic(Topic("t", bytes(16), states))
        self.queue.on_image()

    def decide(self, *indexes: int, name: str = "txn", producer_id: int = 7) -> Decision:
        partitions = frozenset(TopicPartition("t", index) for index in indexes)
        end = TransactionEnd(name, ProducerIdAndEpoch(producer_id, 1), True, partitions, 2)
        decision = Decision(end, 5, lambda: self.is_current, lambda ended, outcome: None)
        assert self.queue.add(decision, NOBODY) == []
        return decision

    def take(self, broker_id: int, **options: int) -> list[WaitingMarker]:
        return self.queue.take(broker_id, **options)


def indexes(markers: list[WaitingMarker]) -> list[int]:
    return [marker.where.partition for marker in markers]


def test_markers_for_own_partitions_are_not_queued() -> None:
    cluster = Cluster(2, 1, 2)
    end = TransactionEnd("txn", ProducerIdAndEpoch(7, 1), True, frozenset(TopicPartition("t", n) for n in range(4)), 2)
    decision = Decision(end, 5, lambda: True, lambda ended, outcome: None)
    assert cluster.queue.add(decision, 2) == [TopicPartition("t", 0), TopicPartition("t", 2)]
    assert len(cluster.queue) == 2, "partition 1, and 3, which nobody knows"
    assert indexes(cluster.take(1)) == [1]
    assert cluster.take(2) == []


def test_an_unregistered_leader_gets_no_markers() -> None:
    cluster = Cluster(2)
    cluster.image = cluster.image.without_broker(2)
    end = TransactionEnd("txn", ProducerIdAndEpoch(7, 1), True, frozenset([TopicPartition("t", 0)]), 2)
    assert cluster.queue.add(Decision(end, 5, lambda: True, lambda ended, outcome: None), 2) == []


def test_s39_markers_go_to_the_leaders_of_their_partitions() -> None:
    cluster = Cluster(1, 2, 1, 3)
    cluster.decide(0, 1, 2)
    cluster.decide(1, 2, name="other", producer_id=8)
    assert cluster.queue.brokers() == [1, 2]
    assert indexes(cluster.take(1)) == [0, 2, 2]
    assert indexes(cluster.take(2)) == [1, 1]
    assert (cluster.queue.brokers(), len(cluster.queue)) == ([], 0)


def test_a_request_has_no_more_than_it_may() -> None:
    cluster = Cluster(*[1] * 5)
    cluster.decide(0, 1, 2, 3, 4)
    assert [indexes(cluster.take(1, most=2)) for _ in range(4)] == [[0, 1], [2, 3], [4], []]


@pytest.mark.parametrize("last", [ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_s39_a_decision_is_complete_with_its_last_partition_and_once(last: ErrorCode) -> None:
    cluster = Cluster(1, 1)
    cluster.decide(0, 1)
    first, second = cluster.take(1)
    assert cluster.queue.answered(first, ErrorCode.NONE, 0.0) is Outcome.MORE_TO_COME
    assert cluster.queue.answered(first, ErrorCode.NONE, 0.0) is Outcome.MORE_TO_COME, "an answer that comes twice"
    assert cluster.queue.answered(second, last, 0.0) is Outcome.COMPLETE
    assert cluster.queue.answered(second, last, 0.0) is Outcome.MORE_TO_COME


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_e7_a_failed_marker_is_retried_with_growing_pauses(code: ErrorCode) -> None:
    cluster = Cluster(1)
    cluster.decide(0)
    now, pauses = 0.0, []
    for _ in range(7):
        (marker,) = cluster.take(1)
        assert cluster.queue.answered(marker, code, now) is Outcome.MORE_TO_COME
        due = cluster.queue.next_due()
        assert due is not None
        cluster.queue.wake(due - 0.001)
        assert cluster.take(1) == []
        pauses.append(round(due - now, 6))
        now = due
        cluster.queue.wake(now)
    assert pauses == [RETRY_SECONDS, 0.2, 0.4, 0.8, *[MAX_RETRY_SECONDS] * 3]


def test_a_marker_follows_its_partition_to_another_leader() -> None:
    cluster = Cluster(1, 1)
    cluster.decide(0, 1)
    cluster.lead(2, 1)
    assert indexes(cluster.take(1)) == [1]
    assert indexes(cluster.take(2)) == [0]


def test_a_partition_without_a_leader_waits_for_the_image_that_has_one() -> None:
    cluster = Cluster(-1)
    decision = cluster.decide(0)
    assert (cluster.queue.brokers(), cluster.queue.has_unknown, len(cluster.queue)) == ([], False, 1)
    cluster.lead(3)
    (marker,) = cluster.take(3)
    assert marker.decision is decision


def test_a_leader_that_is_gone_counts_as_no_leader() -> None:
    cluster = Cluster(3)
    cluster.decide(0)
    cluster.image = cluster.image.without_broker(3)
    assert cluster.take(3) == []
    cluster.lead(1)
    assert indexes(cluster.take(1)) == [0]


def test_a_partition_that_nobody_knows_is_done_with_only_if_it_is_gone() -> None:
    """A partition leader whose cluster image is outdated may report that the partition is unknown. The cluster image of
    this broker may be outdated, too.
    """
    cluster = Cluster(1)
    cluster.decide(0, 7)
    (told,) = cluster.take(1)
    assert cluster.queue.answered(told, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0.0) is Outcome.MORE_TO_COME
    unknown = cluster.queue.take_unknown()
    assert (sorted(indexes(unknown)), cluster.queue.has_unknown) == ([0, 7], False)
    gone = next(marker for marker in unknown if marker is not told)
    assert cluster.queue.gone(gone) is Outcome.MORE_TO_COME
    cluster.queue.again(told, 0.0)
    cluster.queue.wake(RETRY_SECONDS)
    (again,) = cluster.take(1)
    assert cluster.queue.answered(again, ErrorCode.NONE, 1.0) is Outcome.COMPLETE


def test_s40_a_later_coordinator_takes_over() -> None:
    """The new coordinator sends the remaining markers. This broker stops sending as soon as it learns of the new
    coordinator.
    """
    cluster = Cluster(1, 1, 2)
    cluster.decide(0, 1, 2)
    first, second = cluster.take(1)
    assert cluster.queue.answered(first, FENCED, 0.0) is Outcome.FENCED
    cluster.is_current = False
    assert cluster.queue.answered(second, FENCED, 0.0) is Outcome.MORE_TO_COME
    cluster.queue.wake(RETRY_SECONDS)
    assert (cluster.take(1), cluster.take(2), len(cluster.queue)) == ([], [], 0)


def test_s40_a_log_that_was_told_a_wrong_epoch_delays_no_other() -> None:
    """No other coordinator exists, so the marker for this partition is retried, and the transaction's other markers are
    written.
    """
    cluster = Cluster(1, 2)
    cluster.decide(0, 1)
    (fenced,) = cluster.take(1)
    assert cluster.queue.answered(fenced, FENCED, 0.0) is Outcome.FENCED
    (other,) = cluster.take(2)
    assert cluster.queue.answered(other, ErrorCode.NONE, 0.0) is Outcome.MORE_TO_COME
    cluster.queue.wake(RETRY_SECONDS)
    assert cluster.take(1) == [fenced]
    assert cluster.queue.answered(fenced, ErrorCode.NONE, 1.0) is Outcome.COMPLETE


def test_s40_a_former_coordinator_writes_no_more_markers() -> None:
    cluster = Cluster(1, 2)
    cluster.decide(0, 1)
    (marker,) = cluster.take(1)
    cluster.is_current = False
    assert cluster.queue.answered(marker, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.0) is Outcome.MORE_TO_COME
    assert (cluster.queue.next_due(), cluster.take(2), len(cluster.queue)) == (None, [], 0)


def test_a_former_coordinator_completes_nothing() -> None:
    cluster = Cluster(1)
    cluster.decide(0)
    (marker,) = cluster.take(1)
    cluster.is_current = False
    assert cluster.queue.answered(marker, ErrorCode.NONE, 0.0) is Outcome.MORE_TO_COME
