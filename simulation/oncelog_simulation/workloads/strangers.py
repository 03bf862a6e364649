"""A member of the share group that accepts records which other members have acquired (KIP-932).

The members of a real library acknowledge only what they have acquired. A stranger opens a share session with the leader
of a share partition, finds in the simulated broker a record that another member has, and accepts it. The leader must
refuse that; the client complains if it does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from oncelog.errors import ConnectionFailed, KafkaError
from oncelog_broker.coordinator.share.state_batches import DeliveryState
from oncelog_broker.sharing.hosted_share_partition import HostedSharePartition
from oncelog_broker.sharing.record_runs import Run
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from oncelog_protocol.messages.share_fetch import (
    CLOSE_SESSION,
    OPEN_SESSION,
    AcknowledgeType,
    AcquireMode,
    ShareFetchRequest,
)
from oncelog_simulation.workloads.late_peers import PeerWire
from oncelog_simulation.workloads.workload import ClientWorkload, pause

if TYPE_CHECKING:
    from oncelog_simulation.world import World

VERSION: Final = 1
NEXT_EPOCH: Final = OPEN_SESSION + 1
MAX_BYTES: Final = 1024


class Stranger(ClientWorkload):
    """Opens one session after another, each with a new member id."""

    async def live(self, world: World) -> None:
        rng = self.random(world)
        sessions = 0
        async with PeerWire(world.bootstrap_servers) as wire:
            goes_on = self.counts_down(world)
            while goes_on:
                sessions += 1
                try:
                    await self._intrude(world, wire, rng, f"{self.name}/{self.lives}.{sessions}")
                except (KafkaError, ConnectionFailed) as error:
                    world.note(self.name, "gets no response", error=type(error).__name__)
                    await asyncio.sleep(0.1)
                self.notes.step(self.name)
                await pause(world, rng.expovariate(2))

    async def _intrude(self, world: World, wire: PeerWire, rng: Random, member: str) -> None:
        """Accept a record of another member."""
        shares = sorted({share for share, _ in _held(world)}, key=lambda share: share.key)
        if not shares:
            return
        share = rng.choice(shares)
        key, leader = share.key, share.partition.broker_id
        of_topic = ShareFetchRequest.FetchTopic
        session = ShareFetchRequest(
            group_id=key.group_id,
            member_id=member,
            share_session_epoch=OPEN_SESSION,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=MAX_BYTES,
            max_records=1,
            batch_size=1,
            share_acquire_mode=AcquireMode.BATCH_OPTIMIZED,
            forgotten_topics_data=[],
            topics=[
                of_topic(
                    topic_id=key.topic_id,
                    partitions=[of_topic.FetchPartition(partition_index=key.partition, acknowledgement_batches=[])],
                )
            ],
        )
        if (await wire.to_broker(leader, session, VERSION)).error_code:
            return
        others = [run for held, run in _held(world) if held is share and run.owner != member]
        if others:
            run = rng.choice(others)
            offset, owner = run.first, run.owner
            answer = await wire.to_broker(leader, _accept(share, member, NEXT_EPOCH, offset), VERSION)
            told = [each.error_code for topic in answer.responses for each in topic.partitions]
            # Offsets below the start offset, which the group has finished, may be acknowledged by anyone.
            if not answer.error_code and told == [ErrorCode.NONE] and share.share.start_offset <= offset:
                self.notes.complain(world, self.name, f"the record at {offset} of {owner} was accepted by {member}")
        await wire.to_broker(leader, _accept(share, member, CLOSE_SESSION, None), VERSION)


def _held(world: World) -> Iterator[tuple[HostedSharePartition, Run]]:
    """Yield the records that a member has acquired and not acknowledged, behind records that are not finished."""
    for machine in world.brokers.values():
        running = None if machine.broker is None else machine.broker.parts.coordinators.present
        if running is not None:
            for share in running.share_partitions.all():
                for run in share.share.runs.runs if share.is_current else ():
                    if (
                        run.state is DeliveryState.ACQUIRED
                        and run.becomes is None
                        and run.first > share.share.start_offset
                    ):
                        yield share, run


def _accept(share: HostedSharePartition, member: str, epoch: int, offset: int | None) -> ShareAcknowledgeRequest:
    """Return a request that accepts one record; None accepts nothing."""
    of_topic = ShareAcknowledgeRequest.AcknowledgeTopic
    of_partition = of_topic.AcknowledgePartition
    accepted = (
        []
        if offset is None
        else [
            of_partition.AcknowledgementBatch(
                first_offset=offset, last_offset=offset, acknowledge_types=[AcknowledgeType.ACCEPT]
            )
        ]
    )
    partition = of_partition(partition_index=share.key.partition, acknowledgement_batches=accepted)
    topics = [] if offset is None else [of_topic(topic_id=share.key.topic_id, partitions=[partition])]
    return ShareAcknowledgeRequest(
        group_id=share.key.group_id, member_id=member, share_session_epoch=epoch, topics=topics
    )
