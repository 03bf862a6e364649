"""Asks leaders whether they lead now, with an online log, before a follower discards records of its own.

A follower that is out of sync may discard records only if its leader has all acknowledged records *and is alive*. The
cluster image alone does not prove that a leader is alive: the leader may have crashed before its session expires, and
may restart with an empty disk. The follower's records may then be the only ones left, and an election must find them
(S81).

This broker therefore sends OffsetForLeaderEpoch to the leader, with the leader epoch from the cluster image. A broker
responds to that request without an error only while it leads in exactly that epoch. In contrast to a Fetch request,
OffsetForLeaderEpoch does not tell the leader where this follower's log ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

from oncelog_broker.replication.peers import Peers, PeerUnavailable, Purpose
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

logger = logging.getLogger(__name__)

TopicRequest = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
PartitionRequest = TopicRequest.OffsetForLeaderPartition

ANSWER_SECONDS: Final = 2.0
"""Seconds that a leader may take to respond; a slower leader counts as unavailable until the next check."""
MAX_PARTITIONS: Final = 1000
"""The maximum number of partitions in one request; the leaders of the other partitions are asked at the next check."""


class Led(NamedTuple):
    """A partition, with its leader and leader epoch according to the cluster image."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int


class AsksLeaders(Protocol):
    """Interface: asks leaders whether they still lead; implemented by `LeaderCheck`."""

    async def confirmed(self, partitions: Collection[Led]) -> set[Led]:
        """Return those partitions whose leaders have just confirmed that they lead in that epoch, with an online
        log.
        """


class LeaderCheck:
    """Asks leaders over the network whether they still lead."""

    def __init__(self, broker_id: int, peers: Peers) -> None:
        self._broker_id = broker_id
        self._peers = peers

    async def confirmed(self, partitions: Collection[Led]) -> set[Led]:
        """Implements `AsksLeaders.confirmed`."""
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
            logger.info("the log end of a leader could not be requested", extra={"leader": leader, "reason": error})
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
