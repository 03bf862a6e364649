"""Several fake brokers that form one cluster. Tests can move leaders, truncate logs, and make brokers lag or hang.

All replicas of a partition are one log that all brokers share; each broker decides by its own view whether it may use
the log. A broker that `lags` keeps the view that it had when it began to lag, like a broker that is cut off from the
others.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.support.fake_broker import FakeBroker, FetchData, ProduceAnswer
from tests.support.fake_transactions import FakeCoordinator, SequenceChecks

from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.fetch import FetchRequest, FetchResponse
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from oncelog_protocol.messages.metadata import MetadataRequest, MetadataResponse
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from oncelog_protocol.messages.produce import ProduceRequest, ProduceResponse
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from oncelog_protocol.records.batch import RecordBatch

PARTITION_LEADER_EPOCH = slice(12, 16)
"""The position of the partition leader epoch in a batch, which the batch's CRC does not cover."""

Place = tuple[str, int]
EpochEnd = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult.EpochEndOffset


@dataclass
class View:
    """One broker's view of the cluster: (leader, leader epoch) of each partition, the live brokers, the controller, and
    the broker that coordinates all groups and transactions.
    """

    leaders: dict[Place, tuple[int, int]] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    controller: int = 1
    coordinator: int = 1

    def copy(self) -> View:
        return View(dict(self.leaders), set(self.live), self.controller, self.coordinator)


class FakeCluster:
    """`async with FakeCluster() as cluster:` runs three brokers with the topic "topic", whose leader is broker 1 in
    leader epoch 5.
    """

    def __init__(self, count: int = 3, *, partitions: int = 1) -> None:
        self.view = View()
        self.logs: dict[Place, list[bytes]] = {}
        self.ends: dict[Place, int] = {}
        self.checks: dict[Place, SequenceChecks] = {}
        self.brokers = {node_id: ClusterBroker(self, node_id) for node_id in range(1, count + 1)}
        for index in range(partitions):
            self.view.leaders["topic", index] = (1, 5)

    async def __aenter__(self) -> FakeCluster:
        for node_id in self.brokers:
            await self.start(node_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            await broker.stop()

    @property
    def addresses(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    async def start(self, node_id: int) -> None:
        await self.brokers[node_id].start()
        self.view.live.add(node_id)

    async def kill(self, node_id: int) -> None:
        self.view.live.discard(node_id)
        await self.brokers[node_id].stop()

    def lead(self, node_id: int, topic: str = "topic", partition: int = 0) -> None:
        """Make `node_id` the leader of the partition in the next leader epoch."""
        _, epoch = self.view.leaders[topic, partition]
        self.view.leaders[topic, partition] = (node_id, epoch + 1)

    def truncate(self, end: int, topic: str = "topic", partition: int = 0) -> None:
        """Truncate the log at `end`, which must be the start of a batch, as if the only replica with the later records
        were lost.
        """
        place = (topic, partition)
        self.logs[place] = [batch for batch in self.logs[place] if RecordBatch(batch).base_offset < end]
        self.ends[place] = end

    def append(self, data: bytes, topic: str = "topic", partition: int = 0) -> int:
        """Append a batch as the leader does, which sets the batch's base offset and leader epoch."""
        _, epoch = self.view.leaders[topic, partition]
        stamped = bytearray(data)
        stamped[PARTITION_LEADER_EPOCH] = epoch.to_bytes(4, "big", signed=True)
        return self.brokers[1].append(bytes(stamped), topic, partition)

    def values(self, topic: str = "topic", partition: int = 0) -> list[Any]:
        return [record.value for record in self.brokers[1].records(topic, partition)]

    def end_of(self, place: Place, epoch: int) -> tuple[int, int]:
        """Return the highest leader epoch up to `epoch` that has a batch or is the current one, and its end offset."""
        if epoch == self.view.leaders[place][1]:
            return epoch, self.ends.get(place, 0)
        found, end = -1, -1
        for data in self.logs.get(place, []):
            batch = RecordBatch(data)
            if batch.partition_leader_epoch > epoch:
                break
            found, end = batch.partition_leader_epoch, batch.next_offset
        return found, end

    def coordinate(self, *, is_v2: bool) -> FakeCoordinator:
        """Serve transactions from one state that all brokers share; `view.coordinator` is the broker that acts as
        coordinator.
        """
        parts = [FakeCoordinator(broker, is_v2=is_v2) for broker in self.brokers.values()]
        for broker, part in zip(self.brokers.values(), parts, strict=True):
            part.transactions, part.logs = parts[0].transactions, self.checks
            part.committed, part.offsets, part.script = parts[0].committed, parts[0].offsets, parts[0].script
            broker.coordinates(part)
        return parts[0]


class ClusterBroker(FakeBroker):
    """One broker. A broker of the cluster. `requests` are the requests that the broker received; while it is paused
    (`pause`), the broker sends no responses.
    """

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        super().__init__()
        self.cluster = cluster
        self.node_id = node_id
        self.logs, self.ends = cluster.logs, cluster.ends
        self.lagging: View | None = None
        self.tells: View | None = None
        """The view that the broker's Metadata responses describe; None means the broker's own view.
        """
        self.has_hints = True
        self._runs = asyncio.Event()
        self._runs.set()
        self.handlers[OffsetForLeaderEpochRequest] = self.on_offset_for_leader_epoch
        self.handlers[FindCoordinatorRequest] = self.on_find_coordinator

    @property
    def view(self) -> View:
        return self.lagging or self.cluster.view

    def lag(self) -> None:
        """Stop learning of changes from now on."""
        self.lagging = self.cluster.view.copy()

    def pause(self) -> None:
        self._runs.clear()

    def resume(self) -> None:
        self._runs.set()

    def coordinates(self, coordinator: FakeCoordinator) -> None:
        """Act as one broker of a cluster with a coordinator: respond with NOT_COORDINATOR or NOT_LEADER_OR_FOLLOWER
        while another broker has that role.
        """

        async def ask(request: Any) -> Any:
            if self.view.coordinator != self.node_id and getattr(request, "transactional_id", "") is not None:
                return coordinator.answer(request, self.version, refusal=ErrorCode.NOT_COORDINATOR)
            return await coordinator._handle(request)

        for kind in (InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest):
            self.handlers[kind] = ask
        self.handlers[TxnOffsetCommitRequest] = ask
        self.handlers[FindCoordinatorRequest] = self.on_find_coordinator
        self.handlers.pop(ProduceRequest)
        self.transactions = coordinator

    transactions: FakeCoordinator | None = None

    async def _answer(self, frame: bytes) -> bytes | None:
        await self._runs.wait()
        return await super()._answer(frame)

    def refusal(self, place: Place, leader_epoch: int = -1) -> ErrorCode:
        """Return the error code for a request with this leader epoch, according to this broker's view."""
        if place not in self.view.leaders:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader, epoch = self.view.leaders[place]
        if leader != self.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if leader_epoch in (-1, epoch):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if leader_epoch < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def on_metadata(self, request: MetadataRequest) -> MetadataResponse:
        view, topic = self.tells or self.view, MetadataResponse.MetadataResponseTopic
        names = {name for name, _ in view.leaders} if request.topics is None else {t.name for t in request.topics}
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=node_id, host="127.0.0.1", port=self.cluster.brokers[node_id].port
                )
                for node_id in sorted(view.live)
            ],
            cluster_id="cluster",
            controller_id=view.controller,
            topics=[
                topic(
                    name=name,
                    error_code=0 if (name, 0) in view.leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    partitions=[
                        topic.MetadataResponsePartition(
                            error_code=0,
                            partition_index=index,
                            leader_id=leader,
                            leader_epoch=epoch,
                            replica_nodes=sorted(self.cluster.brokers),
                            isr_nodes=sorted(view.live),
                        )
                        for (of, index), (leader, epoch) in sorted(view.leaders.items())
                        if of == name
                    ],
                )
                for name in sorted(name for name in names if name)
            ],
        )

    def on_produce(self, request: ProduceRequest) -> ProduceResponse:
        def outcome(topic: str, data: Any) -> tuple[int, int]:
            place = (topic, data.index)
            code = self.refusal(place)
            if code:
                return code, -1
            if self.transactions is not None:
                return self.transactions.append(data.records, topic, data.index, request.transactional_id, self.version)
            batch = RecordBatch(bytes(data.records))
            checks = self.cluster.checks.setdefault(place, SequenceChecks())
            code, known = checks.check(batch) if batch.producer_id >= 0 else (ErrorCode.NONE, None)
            if code or known is not None:
                return code, -1 if known is None else known
            offset = self.cluster.append(bytes(data.records), topic, data.index)
            checks.appended(batch, offset)
            return 0, offset

        response = self.produced(request, outcome)
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self.has_hints:
                    leader, epoch = self.view.leaders[topic.name, answer.index]
                    answer.current_leader = ProduceAnswer.PartitionProduceResponse.LeaderIdAndEpoch(
                        leader_id=leader, leader_epoch=epoch
                    )
                    port = self.cluster.brokers[leader].port
                    response.node_endpoints = [
                        ProduceResponse.NodeEndpoint(node_id=leader, host="127.0.0.1", port=port)
                    ]
        return response

    def fetched(self, request: FetchRequest) -> FetchResponse:
        response = super().fetched(request)
        asked = {(topic.topic, wanted.partition): wanted for topic in request.topics for wanted in topic.partitions}
        for topic in response.responses:
            topic.partitions = [
                self._checked((topic.topic, data.partition_index), data, asked[topic.topic, data.partition_index])
                for data in topic.partitions
            ]
        return response

    def _checked(self, place: Place, data: Any, wanted: Any) -> Any:
        code = self.refusal(place, wanted.current_leader_epoch)
        if code:
            refused = FetchData(partition_index=place[1], error_code=code, high_watermark=-1, records=b"")
            if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self.has_hints:
                leader, epoch = self.view.leaders[place]
                refused.current_leader = FetchData.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            return refused
        if wanted.last_fetched_epoch >= 0:
            epoch, end = self.cluster.end_of(place, wanted.last_fetched_epoch)
            if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:
                diverging = FetchData.EpochEndOffset(epoch=epoch, end_offset=end)
                return FetchData(
                    partition_index=place[1], error_code=0, high_watermark=end, diverging_epoch=diverging, records=b""
                )
        return data

    def on_list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = super().on_list_offsets(request)
        for topic, asked in zip(response.topics, request.topics, strict=True):
            for answer, wanted in zip(topic.partitions, asked.partitions, strict=True):
                answer.error_code = self.refusal((topic.name, answer.partition_index), wanted.current_leader_epoch)
        return response

    def on_offset_for_leader_epoch(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        result = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                place = (topic.topic, wanted.partition)
                code = self.refusal(place, wanted.current_leader_epoch)
                epoch, end = (-1, -1) if code else self.cluster.end_of(place, wanted.leader_epoch)
                answers.append(
                    EpochEnd(error_code=code, partition=wanted.partition, leader_epoch=epoch, end_offset=end)
                )
            topics.append(result(topic=topic.topic, partitions=answers))
        return OffsetForLeaderEpochResponse(topics=topics)

    def on_find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        node_id = self.view.coordinator
        found = FindCoordinatorResponse.Coordinator(
            key=request.coordinator_keys[0],
            node_id=node_id,
            host="127.0.0.1",
            port=self.cluster.brokers[node_id].port,
            error_code=0,
        )
        return FindCoordinatorResponse(coordinators=[found])
