"""Tests a controller on a real ZooKeeper: connections are cut before or after a write is applied. No change is made
twice, and none is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.support.hosts import host_of
from tests.support.zookeeper.cutting_proxy import CuttingProxy, Moment
from tests.support.zookeeper.frames import Direction, Op

from oncelog_broker.controller.alter_partition import Member, Proposal
from oncelog_broker.controller.elector import Elector
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.membership.registration import register_broker
from oncelog_broker.metadata.model import reader
from oncelog_broker.metadata.model.image import PartitionState
from oncelog_broker.metadata.model.payloads import BrokerRegistration, Endpoint, parse_controller_epoch
from oncelog_broker.metadata.stores.store import StoreUnavailable
from oncelog_broker.metadata.stores.zookeeper.zookeeper_store import ZooKeeperStore
from oncelog_broker.runtime.clock import SystemClock
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError

SECONDS = 60


class Cluster:
    """Three brokers in this process that keep metadata in ZooKeeper but store no logs. The first broker is the
    controller, and its ZooKeeper connection goes through the
    proxy.
    """

    def __init__(self, stores: dict[int, ZooKeeperStore], elector: Elector) -> None:
        self.stores, self.elector = stores, elector
        self.topics = elector.topics

    async def partition(self) -> PartitionState | None:
        """Return the state of the partition as another broker reads it."""
        return (await reader.read_image(self.stores[3])).partition("t", 0)

    async def until(self, shows: Callable[[PartitionState | None], bool]) -> PartitionState | None:
        async with asyncio.timeout(SECONDS):
            while not shows(found := await self.partition()):  # noqa: ASYNC110  nobody is told
                await asyncio.sleep(0.02)
        return found

    async def again(self, attempt: Callable[[], Awaitable[object]], done: ErrorCode | None = None) -> None:
        """Repeat `attempt`, as a client does, until it succeeds or its error shows that an earlier attempt has
        succeeded.
        """
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    await attempt()
                    return
                except StoreUnavailable:
                    pass
                except KafkaError as error:
                    if error.code == done:
                        return
                    assert error.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER), error
                await asyncio.sleep(0.02)

    async def propose(self, isr: tuple[int, ...]) -> None:
        """Let the partition's leader send AlterPartition with this ISR, based on the partition state that this leader
        knows.
        """
        term = self.elector.term()
        image = await reader.read_image(self.stores[3])
        state = image.topics["t"].partitions[0]
        proposal = Proposal(state.leader, state.leader_epoch, state.partition_epoch, [Member(each) for each in isr])
        leader_epoch = image.brokers[state.leader].epoch
        (answer,) = await term.alter(state.leader, leader_epoch, [(image.topics["t"].topic_id, 0, proposal)])
        assert not isinstance(answer, KafkaError), answer


@asynccontextmanager
async def brokers(zookeeper: str, proxied: str) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        stores = {}
        for broker, connect in ((3, zookeeper), (2, zookeeper), (1, proxied)):
            stores[broker] = await ZooKeeperStore.open(connect, session_timeout=20.0)
            stack.push_async_callback(stores[broker].close)
            await register_broker(stores[broker], broker, BrokerRegistration((Endpoint("PLAINTEXT", "h", broker),)))
        tasks = Tasks()
        stack.push_async_callback(tasks.close)

        async def no_pause() -> None:
            return

        elector = Elector(stores[1], 1, host_of(SystemClock(), tasks), unclean_by_static=False)
        stack.callback(elector.close)
        yield Cluster(stores, elector)


@pytest.mark.parametrize("direction", [Direction.REQUESTS, Direction.ANSWERS], ids=["never done", "done unheard"])
async def test_no_write_of_the_controller_depends_on_its_answer(
    zookeeper: str, zookeeper_proxy: CuttingProxy, direction: Direction
) -> None:
    async with brokers(zookeeper, zookeeper_proxy.connect_string) as cluster:
        cuts = []

        def cut_next_write() -> None:
            assert all(cut.count == 1 for cut in cuts)
            cuts.append(
                zookeeper_proxy.cut_when(lambda frame: frame.op == Op.MULTI, Moment.BEFORE, direction=direction)
            )

        has_term = asyncio.Event()

        async def on_term(_: object) -> None:
            has_term.set()

        cluster.elector.topics.finish_deletions = on_term  # type: ignore[method-assign]
        # the claim
        cut_next_write()
        await cluster.elector.start()
        async with asyncio.timeout(SECONDS):
            await has_term.wait()
        # a topic
        cut_next_write()
        create = cluster.topics.create_topic
        await cluster.again(lambda: create("t", -1, -1, assignment={0: [2, 1, 3]}), done=ErrorCode.TOPIC_ALREADY_EXISTS)
        state = await cluster.until(lambda found: found is not None and found.leader >= 0)
        assert state is not None
        assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (2, 0, 0, (2, 1, 3))
        # an ISR
        cut_next_write()
        await cluster.again(lambda: cluster.propose((2, 1)))
        state = await cluster.partition()
        assert state is not None
        assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (2, 0, 1, (2, 1))
        # an election
        cut_next_write()
        await cluster.stores[2].close()
        state = await cluster.until(lambda found: found is not None and found.leader == 1)
        assert state is not None
        assert (state.leader_epoch, state.partition_epoch, state.isr) == (1, 2, (1,))
        # cut the connection at the write that deletes the topic
        cut_next_write()
        await cluster.again(lambda: cluster.topics.delete_topic("t"), done=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert await cluster.partition() is None

        assert [cut.count for cut in cuts] == [1] * 5
        data, _ = await cluster.stores[3].get(paths.CONTROLLER_EPOCH)
        assert parse_controller_epoch(data, "") == 1, "another term began"
