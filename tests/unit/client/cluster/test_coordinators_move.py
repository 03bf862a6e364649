"""While the client works, coordinators move to other brokers or die; the client's results are the same as without these
events.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.fake_cluster import FakeCluster
from tests.support.fake_transactions import FakeCoordinator, Step
from tests.support.virtual_time import run_virtually

from oncelog.cluster import TopicPartition
from oncelog.errors import KafkaError
from oncelog.group_offsets import ConsumerGroupMetadata
from oncelog.producer.producer import Producer
from oncelog_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from oncelog_protocol.messages.end_txn import EndTxnRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog_protocol.messages.produce import ProduceRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

GROUP = ConsumerGroupMetadata("g", 3, "member", None)
IN = TopicPartition("in", 0)
STEPS = {
    False: [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest],
    True: [TxnOffsetCommitRequest, EndTxnRequest],
}


async def transact(producer: Producer, number: int) -> None:
    async with producer.transaction():
        await producer.send("topic", b"%d" % number)
        await producer.send_offsets({IN: number + 1}, GROUP)


def strike(cluster: FakeCluster, kind: type, becomes: Step | None) -> None:
    """Let the coordinator move or die at the next request of a type, before or after it handles the request."""
    coordinator = cluster.view.coordinator
    broker = cluster.brokers[coordinator]
    usual = broker.handlers[kind]

    async def struck(request: Any) -> Any:
        broker.handlers[kind] = usual
        if becomes is Step.LOST:
            await usual(request)
        cluster.view.coordinator = coordinator % 3 + 1
        if becomes is None:
            return await usual(request)
        broker._server.close()
        cluster.view.live.discard(coordinator)
        broker.hang_up()
        return None

    broker.handlers[kind] = struck


CASES = [
    pytest.param(is_v2, kind, becomes, id=f"{'V2' if is_v2 else 'V1'}-{kind.__name__[:-7]}-{name}")
    for is_v2, kinds in STEPS.items()
    for kind in kinds
    for name, becomes in (("moved", None), ("dead before", Step.DROPPED), ("dead after", Step.LOST))
]


@pytest.mark.parametrize(("is_v2", "kind", "becomes"), CASES)
def test_a_transaction_has_the_same_outcome(is_v2: bool, kind: type, becomes: Step | None) -> None:
    async def main() -> None:
        async with FakeCluster() as cluster:
            coordinator = cluster.coordinate(is_v2=is_v2)
            cluster.lead(3)
            async with Producer(cluster.addresses, transactional_id="t", linger_ms=0) as producer:
                await transact(producer, 0)
                strike(cluster, kind, becomes)
                await transact(producer, 1)
                await transact(producer, 2)
            assert coordinator.committed == {("topic", 0): [b"0", b"1", b"2"]}
            assert coordinator.offsets == {("g", "in", 0): 3}

    run_virtually(main())


@pytest.mark.parametrize("is_v2", [False, True], ids=["V1", "V2"])
def test_leader_and_coordinator_may_move_at_any_step(is_v2: bool) -> None:
    """The test aborts and repeats a transaction that cannot be committed."""

    async def main() -> None:
        async with FakeCluster() as cluster:
            coordinator = cluster.coordinate(is_v2=is_v2)
            cluster.lead(2)
            async with Producer(cluster.addresses, transactional_id="t", linger_ms=0) as producer:
                for number in range(20):
                    kind = (STEPS[is_v2] + [ProduceRequest])[number % (len(STEPS[is_v2]) + 1)]
                    if kind is ProduceRequest:
                        cluster.lead(1 + number % 3)
                    else:
                        strike(cluster, kind, None)
                    await again(producer, number)
            assert coordinator.committed == {("topic", 0): [b"%d" % number for number in range(20)]}
            assert coordinator.offsets == {("g", "in", 0): 20}

    run_virtually(main())


async def again(producer: Producer, number: int) -> None:
    """Repeat the transaction until it is committed."""
    for _ in range(5):
        try:
            return await transact(producer, number)
        except KafkaError:
            pass
    raise AssertionError(f"transaction {number} is never committed")


def test_a_coordinator_is_forgotten_with_its_connection() -> None:
    """The coordinator went down while the producer was idle, so the next request goes to the new coordinator."""

    async def main() -> None:
        async with FakeCluster() as cluster:
            cluster.coordinate(is_v2=True)
            cluster.lead(3)
            async with Producer(cluster.addresses, transactional_id="t", linger_ms=0) as producer:
                await transact(producer, 0)
                await cluster.kill(1)
                await cluster.start(1)
                cluster.view.coordinator = 2
                before = len(of(cluster, EndTxnRequest, 1))
                await transact(producer, 1)
                assert len(of(cluster, EndTxnRequest, 1)) == before

    run_virtually(main())


def test_a_broker_that_names_the_wrong_coordinator_is_not_asked_alone() -> None:
    """A broker that is cut off names itself as coordinator, and refuses the requests."""

    async def main() -> None:
        async with FakeCluster() as cluster:
            coordinator = cluster.coordinate(is_v2=True)
            cluster.lead(3)
            async with Producer(cluster.brokers[1].address, transactional_id="t", linger_ms=0) as producer:
                await transact(producer, 0)
                lagging = cluster.brokers[1]
                lagging.lag()
                cluster.view.coordinator = 2
                for kind in (InitProducerIdRequest, TxnOffsetCommitRequest, EndTxnRequest):
                    lagging.handlers[kind] = refusing(cluster, coordinator, lagging.handlers[kind])
                await transact(producer, 1)
            assert coordinator.committed == {("topic", 0): [b"0", b"1"]}
            assert len(of(cluster, FindCoordinatorRequest, 1)) <= 10

    run_virtually(main())


def refusing(cluster: FakeCluster, coordinator: FakeCoordinator, usual: Any) -> Any:
    """Return the responses of a coordinator whose lease has ended."""

    async def refuse(request: Any) -> Any:
        lagging = cluster.brokers[1]
        lagging.lagging.coordinator = 2
        answer = await usual(request)
        lagging.lagging.coordinator = 1
        return answer

    return refuse


def of(cluster: FakeCluster, kind: type, node_id: int) -> list[Any]:
    return cluster.brokers[node_id].requests_of(kind)
