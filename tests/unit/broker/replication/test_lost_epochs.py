"""No leader epoch is used twice if the metadata store is older than a log (S77)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.hosts import host_of
from tests.support.shared_tree import SharedTree
from tests.support.storage import make_batch

from oncelog_broker.controller.alter_partition import decide
from oncelog_broker.controller.known_broker import KnownBroker
from oncelog_broker.controller.partition_decisions import PartitionChange
from oncelog_broker.controller.view import ClusterView, KnownState
from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model import payloads
from oncelog_broker.metadata.model.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.replication import epoch_raiser
from oncelog_broker.replication.epoch_raiser import EpochRaiser
from oncelog_broker.replication.lost_epochs import epochs_above_store
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.peers import PeerUnavailable
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.replication.roles import LOST_EPOCHS
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_broker.runtime.slices import no_pause
from oncelog_broker.runtime.tasks import Tasks
from oncelog_broker.server.replicas.alter_partition import _proposals
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

ME, OTHER = 1, 2
TOPIC_ID = bytes([1]) * 16
EMPTY = ClusterImage("").with_broker(Broker(ME, 1, ())).with_broker(Broker(OTHER, 1, ()))
KEY = PartitionKey("orders", 0)


class Followed:
    """Replaces the fetchers; has the partitions that are fetched now."""

    def __init__(self) -> None:
        self.partitions: set[Partition] = set()

    def follow(self, partition: Partition) -> None:
        self.forget(partition)
        if partition.leader != NO_LEADER:
            self.partitions.add(partition)

    def forget(self, partition: Partition) -> None:
        self.partitions.discard(partition)

    def hears(self, partition: Partition) -> bool:
        return partition in self.partitions


class Host:
    """Broker 1 with one partition, whose log has three records of leader epoch 5; the controller's rules decide."""

    def __init__(self, directory: Path) -> None:
        self.clock, self.tasks = ManualClock(), Tasks()
        self.logs = LogManager.open([directory], node_id=ME, cluster_id="c", disk=RealDisk(), clock=self.clock)
        self.followed = Followed()
        self.replicas = Replicas(
            ME, self.logs, lambda _: LogConfig(), host_of(tasks=self.tasks), lambda _: self.followed
        )
        self.image = EMPTY
        self.asked: list[int] = []
        """The latest leader epoch of the log, as each request contains it."""
        self.is_away = False
        self.raiser = EpochRaiser(ME, self.replicas, self, self.alter, host_of(self.clock, self.tasks))

    async def show(self, leader: int, epoch: int, isr: tuple[int, ...] = (ME, OTHER), version: int = 0) -> None:
        state = PartitionState((ME, OTHER), isr, leader, epoch, version)
        newer = EMPTY.with_topic(Topic("orders", TOPIC_ID, {0: state}))
        self.replicas.on_image(self.image, newer)
        self.image = newer
        await self.replicas.until_opened()

    async def fill(self) -> None:
        await self.show(ME, 5)
        for _ in range(3):
            self.replicas.leader("orders", 0).append(memoryview(make_batch()), required_acks=1)

    async def restore(self, leader: int, epoch: int, isr: tuple[int, ...] = (ME, OTHER)) -> None:
        """Show the broker the partition state of an older store, as if the store and the broker had been restarted."""
        await self.show(NO_LEADER, 5)
        await self.show(leader, epoch, isr, version=3)

    async def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Apply the controller's decision, and show the broker the new state immediately."""
        if self.is_away:
            raise PeerUnavailable(OTHER, "it is away")
        ((_, _, proposal),) = _proposals(request, 3)
        self.asked.append(proposal.log_epoch)
        view, state = ClusterView(), self.image.topics["orders"].partitions[0]
        view.put_brokers(KnownBroker(b, 1) for b in (ME, OTHER))
        view.put_topic("orders", payloads.TopicAssignment(TOPIC_ID, {0: payloads.ReplicaAssignment((ME, OTHER))}))
        known = payloads.PartitionState(state.leader, state.leader_epoch, state.isr, 1)
        view.put_state(KEY, KnownState(known, state.partition_epoch, 1))
        decided = decide(view, KEY, proposal, controller_epoch=1)
        if isinstance(decided, PartitionChange):
            after = decided.state
            await self.show(after.leader, after.leader_epoch, after.isr, state.partition_epoch + 1)
        return AlterPartitionResponse(error_code=0, topics=[])

    @property
    def only(self) -> Partition:
        (partition,) = self.replicas.partitions()
        return partition


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    made = Host(tmp_path)
    await made.fill()
    yield made
    await made.tasks.close()
    made.logs.close()


@pytest.mark.parametrize("epoch", [2, 5], ids=["older", "the same"])
async def test_s77_a_leader_elected_below_its_own_log_waits_for_a_higher_epoch(host: Host, epoch: int) -> None:
    await host.restore(ME, epoch)
    with pytest.raises(KafkaError) as refused:
        host.replicas.leader("orders", 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await host.raiser.look()
    assert host.asked == [5]
    led = host.replicas.leader("orders", 0)
    assert led.leader_epoch == 5 + LOST_EPOCHS
    led.append(memoryview(make_batch()), required_acks=1)
    assert led.log.latest_epoch == 5 + LOST_EPOCHS
    assert not host.replicas.lost_epochs


async def test_s77_a_follower_with_a_newer_epoch_fetches_when_its_leaders_epoch_is_raised(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    await host.restore(OTHER, 4)
    assert not host.followed.partitions, "the leader could not tell where the logs part"
    host.is_away = True
    for _ in range(10):
        host.clock.advance_ms(1000)
        await host.raiser.look()
    told = [line for line in caplog.records if "newer leader epoch than its leader" in line.message]
    assert len(told) == 1
    host.is_away = False
    host.clock.advance_ms(60_000)
    await host.raiser.look()
    assert host.followed.partitions == {host.only}
    assert (host.only.leader, host.only.leader_epoch) == (OTHER, 5 + LOST_EPOCHS)


@pytest.mark.parametrize("leader", [ME, OTHER])
async def test_s77_a_store_that_goes_back_while_the_broker_runs_is_seen_without_a_record(
    host: Host, leader: int
) -> None:
    await host.show(OTHER, 9)
    await host.show(leader, 6, version=3)
    assert not host.followed.partitions
    assert host.replicas.led_partition("orders", 0) is None
    await host.raiser.look()
    assert host.asked == [9]
    assert host.only.leader_epoch == 9 + LOST_EPOCHS
    assert host.only.leads is (leader == ME)


@pytest.mark.parametrize("leader", [ME, OTHER])
async def test_s77_elections_that_hide_an_older_state_are_not_believed(host: Host, tmp_path: Path, leader: int) -> None:
    """Several brokers start with an older metadata store. They elect each other until the leader epoch in the store is
    as high as in their logs.

    Another replica may have records of exactly that leader epoch.
    """
    store = SharedTree().connect()
    path = paths.partition_state("orders", 0)
    older = payloads.encode_partition_state(payloads.PartitionState(OTHER, 3, (OTHER,), 1))
    await store.create(path, older, make_parents=True)
    above = await epochs_above_store(store, tuple(host.logs.logs()), no_pause)
    assert above == {("orders", 0): 5}
    await store.set(path, b"{")
    assert await epochs_above_store(store, tuple(host.logs.logs()), no_pause) == {}
    host.replicas.lost_epochs.expect(above)
    await host.restore(leader, 6)
    assert host.replicas.led_partition("orders", 0) is None
    assert not host.followed.partitions
    await host.raiser.look()
    assert host.only.leader_epoch == 6 + LOST_EPOCHS
    assert host.only.leads is (leader == ME)


async def test_s77_an_epoch_that_rises_while_a_higher_one_is_waited_for_is_not_enough(host: Host) -> None:
    await host.restore(ME, 5)
    await host.show(ME, 6, version=4)
    assert host.replicas.led_partition("orders", 0) is None
    await host.raiser.look()
    assert host.replicas.leader("orders", 0).leader_epoch == 6 + LOST_EPOCHS


async def test_s77_the_log_of_a_topic_that_was_made_again_expects_nothing(host: Host) -> None:
    host.replicas.lost_epochs.expect({("orders", 0): 4})
    await host.show(OTHER, 6)
    assert host.followed.partitions == {host.only}


async def test_s77_a_partition_without_a_leader_has_its_epoch_raised_before_one_is_elected(host: Host) -> None:
    await host.restore(NO_LEADER, 3)
    await host.raiser.look()
    assert host.image.topics["orders"].partitions[0].leader_epoch == 5 + LOST_EPOCHS
    assert not host.replicas.lost_epochs


async def test_s77_a_broker_alone_waits_for_higher_epochs_before_it_serves(host: Host) -> None:
    await host.restore(ME, 1, isr=(ME,))
    await host.raiser.until_raised(host.replicas.until_settled)
    assert host.replicas.leader("orders", 0).leader_epoch == 5 + LOST_EPOCHS


async def test_s77_where_the_store_is_older_for_another_reason_epochs_without_records_are_raised_too(
    host: Host,
) -> None:
    """Clients may know leader epochs of earlier leaders that wrote no record."""
    await host.show(ME, 6)
    host.raiser.doubt_all()
    await host.show(ME, 6, (ME,), version=1)  # the ISR changes before the epoch is raised
    await host.raiser.until_raised(host.replicas.until_settled)
    assert host.replicas.leader("orders", 0).leader_epoch == 6 + LOST_EPOCHS
    assert not host.replicas.lost_epochs


async def test_s77_a_broker_alone_starts_without_partitions_whose_epoch_cannot_be_raised(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(epoch_raiser, "ATTEMPT_SECONDS", 0.0)
    host.is_away = True
    await host.restore(ME, 1)
    await host.raiser.until_raised(host.replicas.until_settled)
    assert [line for line in caplog.records if "stay without a leader" in line.message]


async def test_s77_no_epoch_is_requested_while_the_present_one_continues(host: Host) -> None:
    """The ISR changes within the leader epoch in which this broker wrote records."""
    await host.show(ME, 5, (ME,), version=1)
    assert host.replicas.leader("orders", 0) is host.only
    await host.raiser.look()
    assert host.asked == []
    await host.show(OTHER, 6, (OTHER,), version=2)
    assert host.followed.partitions == {host.only}
    assert not host.replicas.lost_epochs


async def test_s77_a_repeated_epoch_request_is_sent_less_and_less_often(host: Host) -> None:
    attempts = []

    async def refuse(request: AlterPartitionRequest) -> AlterPartitionResponse:
        attempts.append(host.clock.monotonic())
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])

    raiser = EpochRaiser(ME, host.replicas, host, refuse, host_of(host.clock, host.tasks))
    await host.restore(ME, 1)
    for _ in range(600):
        host.clock.advance_ms(500)
        await raiser.look()
    assert 8 <= len(attempts) <= 20


async def test_s77_no_epoch_is_requested_for_a_partition_no_longer_hosted(host: Host) -> None:
    await host.restore(ME, 1)
    before, host.image = host.image, EMPTY
    host.replicas.on_image(before, EMPTY)
    await host.replicas.until_settled()
    await host.raiser.look()
    assert host.asked == []
