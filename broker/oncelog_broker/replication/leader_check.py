"""Asks leaders whether they lead now, with a log that is online, before a follower discards records of its own.

A follower out of sync may give records up only for a leader that has all acknowledged records *and is there*. The image
alone does not say so: the leader that it names may be dead, its session not being over yet, and may come back without
its disk. Then the records that the follower holds are all that is left, and an election must find them (S81).

So this broker asks the leader with OffsetForLeaderEpoch, in the leader epoch of the image. A broker answers it only
while it leads in just that epoch. The request tells the leader nothing of this follower's log end, as a Fetch would.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from oncelog_broker.replication.peers import Peers, PeerUnavailable, Purpose
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

logger = logging.getLogger(__name__)

TopicRequest = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
PartitionRequest = TopicRequest.OffsetForLeaderPartition

ANSWER_SECONDS: Final = 2.0
"""How long a leader may take to answer; then it counts as away, until it is asked again."""
MAX_PARTITIONS: Final = 1000
"""Partitions in one request; the others are asked for the next time."""


class Led(NamedTuple):
    """A partition, and by whom and in which leader epoch the image says that it is led."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int


class AsksLeaders(Protocol):
    """Implemented by `LeaderCheck`."""

    async def confirmed(self, partitions: Collection[Led]) -> set[Led]:
        """Those whose leaders have just said that they lead them in that epoch, with a log that is online."""


class LeaderCheck:
    """Asks over the network."""

    def __init__(self, broker_id: int, peers: Peers) -> None:
        self._broker_id = broker_id
        self._peers = peers

    async def confirmed(self, partitions: Collection[Led]) -> set[Led]:
        """See `AsksLeaders`."""
        by_leader: defaultdict[int, list[Led]] = defaultdict(list)
        for led in partitions:
            if led.leader not in (self._broker_id, -1):
                by_leader[led.leader].append(led)
        answers = await asyncio.gather(*(self._ask(leader, asked) for leader, asked in by_leader.items()))
        return set().union(*answers)

    async def _ask(self, leader: int, asked: Sequence[Led]) -> set[Led]:
        asked = asked[:MAX_PARTITIONS]
        try:
            response = await self._peers.send(
                leader, self._request(asked), purpose=Purpose.CONTROL, timeout=ANSWER_SECONDS
            )
        except PeerUnavailable as error:
            logger.info("a leader was not asked", extra={"leader": leader, "reason": error})
            return set()
        leads = {
            (topic.topic, answer.partition)
            for topic in response.topics
            for answer in topic.partitions
            if answer.error_code == ErrorCode.NONE
        }
        return {led for led in asked if (led.topic, led.partition) in leads}

    def _request(self, asked: Iterable[Led]) -> OffsetForLeaderEpochRequest:
        by_topic: dict[str, list[PartitionRequest]] = {}
        for led in islice(asked, MAX_PARTITIONS):
            by_topic.setdefault(led.topic, []).append(
                PartitionRequest(
                    partition=led.partition, current_leader_epoch=led.leader_epoch, leader_epoch=led.leader_epoch
                )
            )
        topics = [TopicRequest(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()]
        return OffsetForLeaderEpochRequest(replica_id=self._broker_id, topics=topics)
