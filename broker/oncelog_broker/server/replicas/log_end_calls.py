"""Requests the log end offsets of brokers, for the controller before an election. The controller's own broker is called
directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from oncelog_broker.controller.candidates import OFFLINE, UNKNOWN, LogEnd
from oncelog_broker.metadata.model.reader import PartitionKey
from oncelog_broker.replication.peers import Peers, Purpose
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.slices import Pause
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

TopicRequest = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
PartitionRequest = TopicRequest.OffsetForLeaderPartition

PARTITIONS_PER_REQUEST: Final = 1000


class LogEndCalls:
    """Asks brokers for the ends of their logs, for the controller (interface `AskedBrokers` in
    `controller/candidate_questions.py`). No request is sent before `begin`, because a broker may be the controller
    while it is still starting.
    """

    def __init__(self, node_id: int, pause: Pause) -> None:
        self._node_id = node_id
        self._pause = pause
        self._asked: asyncio.Future[tuple[Peers, Replicas]] = asyncio.get_running_loop().create_future()
        """The connections to other brokers and this broker's replicas. The value is a future because this broker
        registers, and can become controller, before its peers and replicas are created.
        """

    def begin(self, peers: Peers, replicas: Replicas) -> None:
        """Send the requests that wait, and send later requests immediately. From now on, `peers` sends the requests to
        other brokers, and `replicas` has the logs of this broker.
        """
        self._asked.set_result((peers, replicas))

    async def until_ready(self) -> None:
        await asyncio.wait([self._asked])

    async def log_ends(
        self, broker: int, keys: Sequence[PartitionKey], timeout: float
    ) -> Mapping[PartitionKey, LogEnd]:
        """Return the log ends of these partitions at a broker, without partitions that it does not know. Raises
        PeerUnavailable."""
        peers, replicas = await asyncio.shield(self._asked)
        if broker == self._node_id:
            return await self._own(replicas, keys)
        ends: dict[PartitionKey, LogEnd] = {}
        for start in range(0, len(keys), PARTITIONS_PER_REQUEST):
            asked = keys[start : start + PARTITIONS_PER_REQUEST]
            response = await peers.send(broker, _request(asked), purpose=Purpose.CONTROL, timeout=timeout)
            if not response.are_log_ends:
                return dict.fromkeys(keys, UNKNOWN)  # the broker's release is older, or it does not trust us
            ends.update(_ends(response))
        return ends

    async def _own(self, replicas: Replicas, keys: Sequence[PartitionKey]) -> dict[PartitionKey, LogEnd]:
        ends: dict[PartitionKey, LogEnd] = {}
        for key in keys:
            await self._pause()
            try:
                ends[key] = LogEnd(*replicas.log_end(*key))
            except KafkaError as error:
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    ends[key] = OFFLINE
        return ends


def _request(keys: Sequence[PartitionKey]) -> OffsetForLeaderEpochRequest:
    by_topic: dict[str, list[PartitionRequest]] = {}
    for topic, index in keys:
        by_topic.setdefault(topic, []).append(PartitionRequest(partition=index, leader_epoch=0))
    topics = [TopicRequest(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics, asks_for_log_ends=True)


def _ends(response: OffsetForLeaderEpochResponse) -> dict[PartitionKey, LogEnd]:
    """Return the log ends in a response, without the partitions that the broker does not know yet."""
    ends: dict[PartitionKey, LogEnd] = {}
    for topic in response.topics:
        for each in topic.partitions:
            key = PartitionKey(topic.topic, each.partition)
            if each.error_code == ErrorCode.NONE:
                ends[key] = LogEnd(each.leader_epoch, each.end_offset)
            elif each.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                ends[key] = OFFLINE
    return ends
