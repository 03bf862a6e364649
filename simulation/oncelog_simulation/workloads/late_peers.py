"""Late copies of requests that a broker sent when it had another role or knew an older state: markers of a former
coordinator, a Fetch of an earlier leader epoch, a Fetch or a controlled shutdown of the process before the last restart
of a broker, a proposed ISR for an older state, and the state of a share partition from its former leader.

The network delays such requests only for seconds, and most of them meet a second check by then. So this client sends
them on purpose, in the name of brokers. It reads from the simulated brokers which ids and epochs are right at the
moment, and sends older ones. It complains if the receiver accepts a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from oncelog.errors import ConnectionFailed, KafkaError
from oncelog_broker.metadata import paths
from oncelog_broker.metadata.model.payloads import parse_controller
from oncelog_broker.replication.partition import Partition
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.alter_partition import AlterPartitionRequest
from oncelog_protocol.messages.controlled_shutdown import ControlledShutdownRequest
from oncelog_protocol.messages.fetch import FetchRequest
from oncelog_protocol.messages.find_coordinator import CoordinatorType
from oncelog_protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from oncelog_protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from oncelog_protocol.schema import Request
from oncelog_simulation.workloads.wire import Wire
from oncelog_simulation.workloads.workload import ClientWorkload, pause

if TYPE_CHECKING:
    from oncelog_simulation.machine import BrokerMachine
    from oncelog_simulation.world import World

R = TypeVar("R")

MARKERS, FETCH, ALTER, SHARE, SHUTDOWN = 1, 15, 3, 0, 3
ARCHIVED: Final = 4
FETCH_BYTES: Final = 1024


class PeerWire(Wire):
    """Connections to all brokers, by broker id."""

    async def to_broker(self, broker: int, request: Request[R], version: int) -> R:
        """Send a request to a broker. Raises KafkaError if no response arrives."""
        connection = await self._pool.connection(broker)
        return await connection.send(request, version)


class LatePeer(ClientWorkload):
    """Sends one late request after another."""

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with PeerWire(world.bootstrap_servers) as wire:
            goes_on = self.counts_down(world)
            while goes_on:
                plays = (self._marker, self._fetch, self._former_process, self._shutdown, self._proposal)
                for play in (*plays, self._share_state):
                    try:
                        await play(world, wire, rng)
                    except (KafkaError, ConnectionFailed) as error:
                        world.note(self.name, "gets no response", error=type(error).__name__)
                        await asyncio.sleep(0.1)
                self.notes.step(self.name)
                await pause(world, rng.expovariate(2))

    async def _marker(self, world: World, wire: PeerWire, rng: Random) -> None:
        """A former coordinator ends a transaction of a producer whose newer coordinator has written a marker (S40)."""
        known = [
            (machine, partition, producer)
            for machine, partition in _led(world)
            for producer in partition.log.producer_state.producers()
            if producer.coordinator_epoch > 0
        ]
        if not known:
            return
        machine, partition, producer = rng.choice(known)
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        topic = marker.WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.index])
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    transaction_result=rng.random() < 0.5,
                    topics=[topic],
                    coordinator_epoch=producer.coordinator_epoch - 1,
                )
            ]
        )
        answer = await wire.to_broker(machine.number, request, MARKERS)
        (told,) = answer.markers[0].topics[0].partitions
        self._must_be_refused(world, "a marker of a former coordinator", told.error_code)

    async def _fetch(self, world: World, wire: PeerWire, rng: Random) -> None:
        """A follower's Fetch of the leader epoch before."""
        followed = [
            (machine, partition, follower)
            for machine, partition in _led(world)
            for follower in sorted(partition.followers)
            if partition.leader_epoch > 0
        ]
        if not followed:
            return
        machine, partition, follower = rng.choice(followed)
        request = _fetch_of(partition, follower, _epoch_of(world, follower), partition.leader_epoch - 1)
        answer = await wire.to_broker(machine.number, request, FETCH)
        for topic_answer in answer.responses:
            for told in topic_answer.partitions:
                self._must_be_refused(world, "a Fetch of an earlier leader epoch", told.error_code)

    async def _former_process(self, world: World, wire: PeerWire, rng: Random) -> None:
        """A follower's Fetch from before its last restart, which had all records. The leader must not count it, once
        the restarted follower has fetched (KIP-903); the judges notice if it does.
        """
        followed = [
            (machine, partition, follower)
            for machine, partition in _led(world)
            for follower, progress in sorted(partition.followers.items())
            if progress.broker_epoch == _epoch_of(world, follower) > 0
            and progress.log_end_offset != partition.log.log_end_offset
        ]
        if not followed:
            return
        machine, partition, follower = rng.choice(followed)
        epoch = _epoch_of(world, follower) - 1
        await wire.to_broker(machine.number, _fetch_of(partition, follower, epoch, partition.leader_epoch), FETCH)

    async def _shutdown(self, world: World, wire: PeerWire, rng: Random) -> None:
        """A broker's announcement, from before its last restart, that it is about to stop (KIP-380)."""
        node = world.store.tree.node(paths.CONTROLLER)
        broker = rng.choice(list(world.brokers.values())).number
        if node is None or _epoch_of(world, broker) < 0:
            return
        request = ControlledShutdownRequest(broker_id=broker, broker_epoch=_epoch_of(world, broker) - 1)
        controller = parse_controller(node.data, paths.CONTROLLER).broker_id
        answer = await wire.to_broker(controller, request, SHUTDOWN)
        self._must_be_refused(world, "a shutdown of an earlier process of a broker", answer.error_code)

    async def _proposal(self, world: World, wire: PeerWire, rng: Random) -> None:
        """A leader's proposal of an ISR, for an older state, or with a replica whose broker has registered again since.
        The proposed ISR has no leader, so that it never equals the present ISR.
        """
        whole = [
            (machine, partition)
            for machine, partition in _led(world)
            if partition.in_sync.partition_epoch > 0 and len(partition.isr) > 1
        ]
        node = world.store.tree.node(paths.CONTROLLER)
        if not whole or node is None:
            return
        machine, partition = rng.choice(whole)
        is_old = rng.random() < 0.5
        of_topic = AlterPartitionRequest.TopicData
        of_partition = of_topic.PartitionData
        followers = [broker for broker in partition.isr if broker != machine.number]
        members = [
            of_partition.BrokerState(broker_id=broker, broker_epoch=_epoch_of(world, broker) - (not is_old))
            for broker in followers
        ]
        proposed = of_partition(
            partition_index=partition.index,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=members,
            partition_epoch=partition.in_sync.partition_epoch - is_old,
        )
        request = AlterPartitionRequest(
            broker_id=machine.number,
            broker_epoch=_epoch_of(world, machine.number),
            topics=[of_topic(topic_id=partition.topic_id, partitions=[proposed])],
        )
        controller = parse_controller(node.data, paths.CONTROLLER).broker_id
        answer = await wire.to_broker(controller, request, ALTER)
        for told in answer.topics:
            what = "an ISR for an older state" if is_old else "an ISR with a broker that has registered again"
            # the controller reports a leader that is replaced because it has left the ISR as an error
            code = told.partitions[0].error_code
            self._must_be_refused(world, what, ErrorCode.NONE if code == ErrorCode.NEW_LEADER_ELECTED else code)

    async def _share_state(self, world: World, wire: PeerWire, rng: Random) -> None:
        """The former leader of a share partition writes the state of a record that is not finished yet."""
        hosted = [
            each
            for machine in world.brokers.values()
            if machine.broker is not None and (running := machine.broker.parts.coordinators.present) is not None
            for each in running.share_partitions.all()
            if each.is_current and each.leader_epoch > 0
        ]
        if not hosted:
            return
        share = rng.choice(hosted)
        key, start = share.key, share.share.start_offset
        of_topic = WriteShareGroupStateRequest.WriteStateData
        of_partition = of_topic.PartitionData
        written = of_partition(
            partition=key.partition,
            state_epoch=share.share.state_epoch,
            leader_epoch=share.leader_epoch - 1,
            start_offset=-1,
            state_batches=[
                of_partition.StateBatch(
                    first_offset=start, last_offset=start, delivery_state=ARCHIVED, delivery_count=1
                )
            ],
        )
        request = WriteShareGroupStateRequest(
            group_id=key.group_id, topics=[of_topic(topic_id=key.topic_id, partitions=[written])]
        )
        answer = await wire.to_coordinator(key.text, request, SHARE, CoordinatorType.SHARE)
        (told,) = answer.results[0].partitions
        self._must_be_refused(world, "a state of the former leader of a share partition", told.error_code)

    def _must_be_refused(self, world: World, what: str, told: int) -> None:
        if told == ErrorCode.NONE:
            self.notes.complain(world, self.name, f"{what} was accepted")


def _fetch_of(partition: Partition, follower: int, broker_epoch: int, leader_epoch: int) -> FetchRequest:
    """Return a Fetch of a follower that has all records of the leader, outside of any fetch session."""
    topic = FetchRequest.FetchTopic
    asked = topic.FetchPartition(
        partition=partition.index,
        current_leader_epoch=leader_epoch,
        fetch_offset=partition.log.log_end_offset,
        last_fetched_epoch=partition.log.latest_epoch,
        log_start_offset=partition.log.log_start_offset,
        partition_max_bytes=FETCH_BYTES,
    )
    return FetchRequest(
        replica_state=FetchRequest.ReplicaState(replica_id=follower, replica_epoch=broker_epoch),
        max_wait_ms=0,
        min_bytes=0,
        topics=[topic(topic_id=partition.topic_id, partitions=[asked])],
    )


def _led(world: World) -> Iterator[tuple[BrokerMachine, Partition]]:
    """Yield all partitions with their leaders' machines."""
    for machine in world.brokers.values():
        if machine.broker is not None:
            for partition in machine.broker.parts.replication.replicas.led():
                yield machine, partition


def _epoch_of(world: World, broker: int) -> int:
    """Return the broker epoch of a running broker; -1 if it is not running."""
    machine = world.brokers[f"broker-{broker}"]
    return -1 if machine.broker is None else machine.broker.parts.membership.member.broker_epoch
