"""A watcher of last stable offsets: what ListOffsets tells a read_committed client must be what such a client can read.

It asks the same leader for the end of a partition with ListOffsets, and then with a Fetch. Within one leader epoch the
last stable offset does not go back, so the offset of the first response must not be above that of the second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from oncelog.errors import ConnectionFailed, KafkaError
from oncelog_protocol.messages.fetch import FetchRequest, IsolationLevel
from oncelog_protocol.messages.list_offsets import LATEST_TIMESTAMP, ListOffsetsRequest
from oncelog_simulation.workloads.late_peers import PeerWire
from oncelog_simulation.workloads.workload import ClientWorkload, pause

if TYPE_CHECKING:
    from oncelog_broker.replication.partition import Partition
    from oncelog_simulation.world import World

LIST_OFFSETS, FETCH = 9, 15
FETCH_BYTES: Final = 1024
LOOK_SECONDS: Final = 0.5
"""Mean virtual seconds, times the pace of the plan, between two looks at all partitions."""


class StableWatcher(ClientWorkload):
    """Compares the two responses for each partition that has a leader."""

    async def live(self, world: World) -> None:
        rng = self.random(world)
        async with PeerWire(world.bootstrap_servers) as wire:
            goes_on = self.counts_down(world)
            while goes_on:
                for place in self.notes.places():
                    for machine in world.brokers.values():
                        broker = machine.broker
                        hosted = None if broker is None else broker.parts.replication.replicas.hosted(*place)
                        if hosted is not None and hosted.leads:
                            try:
                                await self._compare(world, wire, machine.number, hosted)
                            except (KafkaError, ConnectionFailed):
                                await asyncio.sleep(0.1)
                self.notes.step(self.name)
                await pause(world, rng.expovariate(1 / LOOK_SECONDS))

    async def _compare(self, world: World, wire: PeerWire, leader: int, partition: Partition) -> None:
        epoch, topic = partition.leader_epoch, ListOffsetsRequest.ListOffsetsTopic
        asked = topic.ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=epoch, timestamp=LATEST_TIMESTAMP
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=IsolationLevel.READ_COMMITTED,
            topics=[topic(name=partition.topic, partitions=[asked])],
        )
        (listed,) = (await wire.to_broker(leader, request, LIST_OFFSETS)).topics[0].partitions
        if listed.error_code or listed.leader_epoch != epoch:
            return
        of_topic = FetchRequest.FetchTopic
        wanted = of_topic.FetchPartition(
            partition=partition.index,
            current_leader_epoch=epoch,
            fetch_offset=listed.offset,
            partition_max_bytes=FETCH_BYTES,
        )
        fetch = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=IsolationLevel.READ_COMMITTED,
            topics=[of_topic(topic_id=partition.topic_id, partitions=[wanted])],
        )
        answer = await wire.to_broker(leader, fetch, FETCH)
        for found in (each for responses in answer.responses for each in responses.partitions):
            if not found.error_code and found.last_stable_offset < listed.offset:
                what = f"the end of {partition.log.name} is {listed.offset}, and its last stable offset is then "
                self.notes.complain(world, self.name, f"{what}{found.last_stable_offset}")
