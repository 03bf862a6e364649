"""The sender retries until a transaction's markers are written on this and other brokers, whatever happens to its
requests (S39, E7).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.support.hosts import host_of
from tests.support.memory_peers import Fate, MemoryPeers

from oncelog_broker.coordinator.transaction import marker_queue as queue_module
from oncelog_broker.coordinator.transaction import marker_sender as module
from oncelog_broker.coordinator.transaction.machine import TransactionEnd
from oncelog_broker.coordinator.transaction.marker_queue import Decision, Outcome
from oncelog_broker.coordinator.transaction.marker_sender import MarkerSender
from oncelog_broker.coordinator.transaction.markers import Marker
from oncelog_broker.coordinator.transaction.metadata import TopicPartition
from oncelog_broker.metadata.model.image import Broker, ClusterImage, PartitionState, Topic
from oncelog_broker.metadata.stores.store import ConnectionLost
from oncelog_broker.runtime.clock import ManualClock, SystemClock
from oncelog_broker.runtime.slices import Slices
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from oncelog_protocol.producer_id import ProducerIdAndEpoch

ME, OTHER, THIRD = 1, 2, 3
COORDINATOR_EPOCH = 5
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = Result.WritableTxnMarkerTopicResult


class Leader:
    """Writes markers like a broker. `codes` are the error codes of the next responses for each partition; all further
    responses have the code NONE.
    """

    def __init__(self) -> None:
        self.codes: dict[int, list[Any]] = {}
        self.written: list[tuple[Marker, int]] = []

    def append(self, marker: Marker, where: TopicPartition) -> Any:
        codes = self.codes.get(where.partition, [])
        code = codes.pop(0) if codes else ErrorCode.NONE
        if code is ErrorCode.NONE:
            self.written.append((marker, where.partition))
        return code

    def __call__(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Handle a WriteTxnMarkers request from another broker."""
        results = []
        for asked in request.markers:
            marker = Marker(
                ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch),
                asked.transaction_result,
                asked.coordinator_epoch,
                asked.transaction_version,
            )
            topics = [
                TopicResult(
                    name=topic.name,
                    partitions=[
                        TopicResult.WritableTxnMarkerPartitionResult(
                            partition_index=index, error_code=self.append(marker, TopicPartition(topic.name, index))
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in asked.topics
            ]
            results.append(Result(producer_id=asked.producer_id, topics=topics))
        return WriteTxnMarkersResponse(markers=results)

    @property
    def partitions(self) -> list[int]:
        return [index for _, index in self.written]


class Cluster:
    def __init__(self) -> None:
        self.peers, self.tasks, self.clock = MemoryPeers(), Tasks(), SystemClock()
        self.leaders = {broker_id: Leader() for broker_id in (ME, OTHER, THIRD)}
        self.peers.handlers = {OTHER: self.leaders[OTHER], THIRD: self.leaders[THIRD]}
        self.image = ClusterImage("")
        for broker_id in self.leaders:
            self.image = self.image.with_broker(Broker(broker_id, 1, ()))
        self.outcomes: list[Outcome] = []
        self.current_image: Callable[[], Awaitable[ClusterImage]] = self._image_now
        slices = Slices(ManualClock(), self.tasks)  # no time passes, so no slice ends
        host = host_of(self.clock, self.tasks, slices=slices)
        self.sender = MarkerSender(
            ME,
            self,  # type: ignore[arg-type]
            self.leaders[ME],  # type: ignore[arg-type]
            self.peers,
            host,
        )

    async def synced(self) -> ClusterImage:
        return await self.current_image()

    async def _image_now(self) -> ClusterImage:
        return self.image

    def lead(self, *leaders: int, topic: str = "t") -> None:
        states = {index: PartitionState((leader,), (leader,), leader, 1, 1) for index, leader in enumerate(leaders)}
        self.image = self.image.with_topic(Topic(topic, bytes(16), states))
        self.sender.on_image()

    def write(self, *indexes: int, producer_id: int = 7, topic: str = "t") -> asyncio.Future[Outcome]:
        """Write the markers of one transaction; return a future of the final outcome. `outcomes` collects all reported
        outcomes.
        """
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def on_answer(_: Decision, outcome: Outcome) -> None:
            self.outcomes.append(outcome)
            if outcome is Outcome.COMPLETE:
                ended.set_result(outcome)

        partitions = frozenset(TopicPartition(topic, index) for index in indexes)
        end = TransactionEnd(f"txn-{producer_id}", ProducerIdAndEpoch(producer_id, 1), True, partitions, 2)
        decision = Decision(end, COORDINATOR_EPOCH, lambda: True, on_answer)
        self.sender.write(decision)
        return ended


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(queue_module, "RETRY_SECONDS", 0.001)
    made = Cluster()
    async with asyncio.timeout(30):
        yield made
    await made.tasks.close()


async def test_s39_every_leader_writes_the_markers_of_its_partitions(cluster: Cluster) -> None:
    cluster.lead(ME, OTHER, THIRD, OTHER)
    assert await cluster.write(0, 1, 2, 3) is Outcome.COMPLETE
    assert [leader.partitions for leader in cluster.leaders.values()] == [[0], [1, 3], [2]]
    marker = Marker(ProducerIdAndEpoch(7, 1), True, COORDINATOR_EPOCH, 2)
    assert {written for leader in cluster.leaders.values() for written, _ in leader.written} == {marker}
    assert len(cluster.peers.sent) == 2, "one request for each broker"


@pytest.mark.parametrize("partitions", [1, 120])
async def test_s38_own_markers_are_written_in_the_next_turn_of_the_loop(cluster: Cluster, partitions: int) -> None:
    """The markers are written before the event loop reads from sockets again, unless the present slice of work ends
    first.
    """
    cluster.lead(*[ME] * partitions)
    ended = cluster.write(*range(partitions))
    assert not ended.done()
    await asyncio.sleep(0)
    assert ended.done()


async def test_transactions_that_end_meanwhile_share_the_next_request(cluster: Cluster) -> None:
    cluster.lead(OTHER, OTHER)
    cluster.peers.fates = [Fate.HELD]
    first = cluster.write(0)
    await cluster.peers.sent_to(OTHER, 1)
    others = [cluster.write(0, 1, producer_id=producer_id) for producer_id in (8, 9, 10)]
    await asyncio.sleep(0)
    assert len(cluster.peers.sent) == 1, "one at a time"
    cluster.peers.let_go()
    assert set(await asyncio.gather(first, *others)) == {Outcome.COMPLETE}
    assert [len(request.markers) for _, request in cluster.peers.sent] == [1, 3]


@pytest.mark.parametrize(("fate", "times"), [(Fate.LOST, 1), (Fate.ANSWER_LOST, 2), (Fate.TWICE, 2)])
async def test_e7_requests_and_answers_may_be_lost_or_come_twice(cluster: Cluster, fate: Fate, times: int) -> None:
    cluster.lead(OTHER)
    cluster.peers.fates = [fate]
    assert await cluster.write(0) is Outcome.COMPLETE
    assert cluster.leaders[OTHER].partitions == [0] * times


async def test_e7_a_partition_that_fails_is_sent_again_alone(cluster: Cluster) -> None:
    cluster.lead(OTHER, OTHER)
    cluster.leaders[OTHER].codes[1] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
    assert await cluster.write(0, 1) is Outcome.COMPLETE
    assert [request.markers[0].topics[0].partition_indexes for _, request in cluster.peers.sent] == [[0, 1], [1], [1]]


async def test_a_broker_that_dies_leaves_its_markers_to_the_next_leader(cluster: Cluster) -> None:
    cluster.lead(OTHER)
    del cluster.peers.handlers[OTHER]
    ended = cluster.write(0)
    await cluster.peers.sent_to(OTHER, 2)
    cluster.lead(THIRD)
    assert await ended is Outcome.COMPLETE
    assert cluster.leaders[THIRD].partitions == [0]


@pytest.mark.parametrize("leader", [ME, OTHER])
async def test_markers_taken_from_the_queue_are_written_despite_any_exception(
    cluster: Cluster, leader: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The second of three markers raises an unexpected exception, and the others are still written."""
    marker_of, failures = module._marker, [True]

    def failing(decision: Decision) -> Marker:
        if decision.end.producer.producer_id == 8 and failures:
            failures.pop()
            raise ZeroDivisionError("for this test")
        return marker_of(decision)

    def request(taken: Any) -> WriteTxnMarkersRequest:
        for waiting in taken:
            failing(waiting.decision)
        return request_of(taken)

    request_of = module.request_of
    monkeypatch.setattr(module, "_marker", failing)
    monkeypatch.setattr(module, "request_of", request)
    cluster.lead(leader)
    ended = [cluster.write(0, producer_id=producer_id) for producer_id in (7, 8, 9)]
    assert set(await asyncio.gather(*ended)) == {Outcome.COMPLETE}
    assert len(cluster.leaders[leader].written) == 3
    assert "for this test" in caplog.text


async def test_a_deleted_partition_is_done_with_whatever_the_store_raises(cluster: Cluster) -> None:
    image_now, failures = cluster.current_image, [True]

    async def failing() -> ClusterImage:
        if failures:
            failures.pop()
            raise ZeroDivisionError("for this test")
        return await image_now()

    cluster.current_image = failing
    assert await cluster.write(0) is Outcome.COMPLETE


async def test_a_broker_that_does_not_answer_delays_no_other(cluster: Cluster) -> None:
    cluster.lead(OTHER, THIRD)
    cluster.peers.fates = [Fate.HELD]
    stuck = cluster.write(0)
    await cluster.peers.sent_to(OTHER, 1)
    assert await cluster.write(1, producer_id=8) is Outcome.COMPLETE
    assert not stuck.done()


async def test_s40_another_coordinator_has_taken_over(cluster: Cluster) -> None:
    cluster.lead(OTHER)
    cluster.leaders[OTHER].codes[0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED] * 3
    assert await cluster.write(0) is Outcome.COMPLETE
    assert cluster.outcomes == [*[Outcome.FENCED] * 3, Outcome.COMPLETE], "there is none, as it turns out"


async def test_a_deleted_topic_needs_no_marker(cluster: Cluster) -> None:
    """The topic may be missing in the image, or its leader may have learned of the deletion first."""
    cluster.lead(OTHER)
    cluster.leaders[OTHER].codes[0] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    async def without_topic() -> ClusterImage:
        return cluster.image.without_topic("t")

    cluster.current_image = without_topic
    assert await cluster.write(0) is Outcome.COMPLETE
    assert await cluster.write(0, topic="gone before", producer_id=8) is Outcome.COMPLETE


async def test_a_topic_that_a_late_image_does_not_show_is_not_deleted(cluster: Cluster) -> None:
    """Neither the leader nor this broker knows the topic yet, and the metadata store is unreachable at first."""
    cluster.lead(OTHER)
    cluster.leaders[OTHER].codes[0] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    now, asked = cluster.image, []
    cluster.image = now.without_topic("t")

    async def unavailable() -> ClusterImage:
        asked.append(None)
        if len(asked) == 1:
            raise ConnectionLost("", "the store is not there")
        cluster.image = now
        return now

    cluster.current_image = unavailable
    assert await cluster.write(0) is Outcome.COMPLETE
    assert cluster.leaders[OTHER].partitions == [0]
    assert len(asked) >= 2


async def test_late_answers_of_own_partitions_delay_no_other(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that does not arrive in time counts as lost."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.05)
    cluster.lead(ME, ME, ME)
    never, late = (asyncio.get_running_loop().create_future() for _ in range(2))
    cluster.leaders[ME].codes = {0: [never], 1: [late]}
    ended = cluster.write(0, 1, 2)
    assert await cluster.write(2, producer_id=8) is Outcome.COMPLETE
    late.set_result(ErrorCode.NONE)
    assert await ended is Outcome.COMPLETE
    assert never.result() is ErrorCode.REQUEST_TIMED_OUT
    assert sorted(cluster.leaders[ME].partitions) == [0, 2, 2]


async def test_writing_many_markers_lets_other_work_run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for slices in ("FIRST_MARKERS_SECONDS", "MARKERS_SECONDS"):
        monkeypatch.setattr(module, slices, 0.0)
    cluster.lead(*[ME] * 50)
    ended, turns = cluster.write(*range(50)), 0
    while not ended.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 50


async def test_a_failing_own_partition_is_retried_alone(cluster: Cluster) -> None:
    cluster.lead(ME, ME, ME, OTHER)
    cluster.leaders[ME].codes[1] = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]
    assert await cluster.write(0, 1, 2, 3) is Outcome.COMPLETE
    assert cluster.leaders[ME].partitions == [0, 2, 1]
    assert cluster.leaders[OTHER].partitions == [3]


async def test_own_partitions_get_the_epoch_that_the_coordinator_has_by_then(cluster: Cluster) -> None:
    cluster.lead(ME, ME, ME)
    cluster.leaders[ME].codes[0] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_answer(decision: Decision, outcome: Outcome) -> None:
        if outcome is Outcome.FENCED:
            decision.coordinator_epoch += 1
        else:
            ended.set_result(None)

    partitions = frozenset(TopicPartition("t", index) for index in range(3))
    end = TransactionEnd("txn", ProducerIdAndEpoch(7, 1), True, partitions, 2)
    cluster.sender.write(Decision(end, COORDINATOR_EPOCH, lambda: True, on_answer))
    await ended
    written = {index: marker.coordinator_epoch for marker, index in cluster.leaders[ME].written}
    assert written == dict.fromkeys(range(3), COORDINATOR_EPOCH + 1)


async def test_a_former_coordinator_writes_no_markers_to_its_own_partitions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slices in ("FIRST_MARKERS_SECONDS", "MARKERS_SECONDS"):
        monkeypatch.setattr(module, slices, 0.0)
    cluster.lead(*[ME] * 20)
    partitions = frozenset(TopicPartition("t", index) for index in range(20))
    end = TransactionEnd("txn", ProducerIdAndEpoch(7, 1), True, partitions, 2)
    outcomes: list[Outcome] = []
    decision = Decision(
        end,
        COORDINATOR_EPOCH,
        lambda: len(cluster.leaders[ME].written) < 5,
        lambda _, outcome: outcomes.append(outcome),
    )
    cluster.sender.write(decision)
    for _ in range(100):
        await asyncio.sleep(0)
    assert cluster.leaders[ME].partitions == [0, 1, 2, 3, 4]
    assert outcomes == []
