"""Sends requests about the state of share partitions to the share coordinators, on this broker and on other brokers.

A call of this module concerns share partitions of one group. All share partitions with the same coordinator are sent in
one request. If a coordinator is not found or not ready, the request is retried for some seconds. Any request may be
sent twice, because a repeated change has no further effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from oncelog_broker.coordinator.share.share_coordinator import ShareCoordinator
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import NOT_SET, ShareState
from oncelog_broker.coordinator.share.share_state_machine import StateWrite
from oncelog_broker.coordinator.share.state_batches import batches_of, messages_of
from oncelog_broker.metadata.model.image import NO_LEADER
from oncelog_broker.replication.peers import Peers, PeerUnavailable, Purpose
from oncelog_broker.runtime.answers import Answer, settled, then
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from oncelog_protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from oncelog_protocol.messages.read_share_group_state import ReadShareGroupStateRequest
from oncelog_protocol.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from oncelog_protocol.messages.write_share_group_state import WriteShareGroupStateRequest

ANSWER_SECONDS: Final = 10.0
"""If another broker does not respond within this number of seconds, its response counts as lost."""
PAUSES: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 1.0)
"""Seconds before each retry of a request; after the last retry the coordinator's error is returned."""
RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
NO_STATE: Final = ShareState(0, 0, NOT_SET)
P = TypeVar("P")
R = TypeVar("R")
Results = dict[ShareKey, R | KafkaError]


class _Api(NamedTuple, Generic[P, R]):
    """One API of share coordinators. `local(coordinator, key, payload)` calls the coordinator of this broker,
    `remote(group_id, payloads)` creates a request for another broker, and `result` parses one partition of the
    response."""

    local: Callable[[ShareCoordinator, ShareKey, P], Answer[R | KafkaError]]
    remote: Callable[[str, Mapping[ShareKey, P]], Any]
    result: Callable[[Any], R]


class ShareStateCalls:
    """Client of all share coordinators in the cluster. `node_id` is the id of this broker."""

    def __init__(self, node_id: int, coordinator: ShareCoordinator, peers: Peers) -> None:
        self._node_id = node_id
        self._coordinator = coordinator
        self._peers = peers

    async def read(self, key: ShareKey, leader_epoch: int) -> ShareState | KafkaError:
        """Read the state of a share partition, for the leader of the partition in this leader epoch."""
        return (await self._ask(_READ, {key: leader_epoch}))[key]

    async def write(self, key: ShareKey, write: StateWrite) -> KafkaError | None:
        """Write a change; returns None after the change is committed."""
        return (await self._ask(_WRITE, {key: write}))[key]

    async def initialize(self, starts: Mapping[ShareKey, tuple[int, int]]) -> Results[None]:
        """Initialize the state of share partitions, each with a state epoch and a start offset."""
        return await self._ask(_INITIALIZE, starts)

    async def delete(self, keys: Collection[ShareKey]) -> Results[None]:
        """Delete the state of share partitions."""
        return await self._ask(_DELETE, dict.fromkeys(keys, None))

    async def summaries(self, keys: Collection[ShareKey]) -> Results[ShareState]:
        """Read the states of share partitions, without the delivery states of records. For a share partition without
        state the start offset is -1.
        """
        return await self._ask(_SUMMARY, dict.fromkeys(keys, NOT_SET))

    async def _ask(self, api: _Api[P, R], payloads: Mapping[ShareKey, P]) -> Results[R]:
        results: Results[R] = {}
        left = dict(payloads)
        for pause in (*PAUSES, None):
            found: Results[R] = await self._ask_once(api, left)
            results.update(found)
            left = {key: left[key] for key in left if _is_retried(results[key])}
            if not left or pause is None:
                break
            await asyncio.sleep(pause)
        return results

    async def _ask_once(self, api: _Api[P, R], payloads: Mapping[ShareKey, P]) -> Results[R]:
        results: Results[R] = {}
        mine: list[tuple[ShareKey, Answer[R | KafkaError]]] = []
        others: dict[tuple[int, str], dict[ShareKey, P]] = {}
        for key, payload in payloads.items():
            leader = self._coordinator.runtime.leader_of(key.text)
            if leader == NO_LEADER:
                results[key] = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif leader == self._node_id:
                mine.append((key, api.local(self._coordinator, key, payload)))
            else:
                others.setdefault((leader, key.group_id), {})[key] = payload
        if others:
            asked = (self._ask_broker(api, broker, group, some) for (broker, group), some in others.items())
            for found in await asyncio.gather(*asked):
                results |= found
        for key, answer in mine:
            results[key] = await settled(answer)
        return results

    async def _ask_broker(
        self, api: _Api[P, R], broker_id: int, group_id: str, payloads: Mapping[ShareKey, P]
    ) -> Results[R]:
        results: Results[R] = dict.fromkeys(payloads, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        try:
            response = await self._peers.send(
                broker_id, api.remote(group_id, payloads), purpose=Purpose.SHARE_STATE, timeout=ANSWER_SECONDS
            )
        except PeerUnavailable as error:
            return dict.fromkeys(payloads, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)))
        for topic in response.results:
            for partition in topic.partitions:
                key = ShareKey(group_id, topic.topic_id, partition.partition)
                if partition.error_code:
                    results[key] = KafkaError(ErrorCode.of(partition.error_code), partition.error_message)
                else:
                    results[key] = api.result(partition)
        return results


def _is_retried(result: object) -> bool:
    return isinstance(result, KafkaError) and result.code in RETRIED


def _by_topic(keys: Iterable[ShareKey]) -> dict[bytes, list[ShareKey]]:
    topics: dict[bytes, list[ShareKey]] = {}
    for key in keys:
        topics.setdefault(key.topic_id, []).append(key)
    return topics


def _nothing(_: Any) -> None:
    return None


def _read_request(group_id: str, epochs: Mapping[ShareKey, int]) -> ReadShareGroupStateRequest:
    topic = ReadShareGroupStateRequest.ReadStateData
    return ReadShareGroupStateRequest(
        group_id=group_id,
        topics=[
            topic(
                topic_id=topic_id,
                partitions=[topic.PartitionData(partition=key.partition, leader_epoch=epochs[key]) for key in keys],
            )
            for topic_id, keys in _by_topic(epochs).items()
        ],
    )


def _write_request(group_id: str, writes: Mapping[ShareKey, StateWrite]) -> WriteShareGroupStateRequest:
    topic = WriteShareGroupStateRequest.WriteStateData
    return WriteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            topic(
                topic_id=topic_id,
                partitions=[
                    topic.PartitionData(
                        partition=key.partition,
                        state_epoch=writes[key].state_epoch,
                        leader_epoch=writes[key].leader_epoch,
                        start_offset=writes[key].start_offset,
                        delivery_complete_count=writes[key].complete_count,
                        state_batches=messages_of(topic.PartitionData.StateBatch, writes[key].batches),
                    )
                    for key in keys
                ],
            )
            for topic_id, keys in _by_topic(writes).items()
        ],
    )


def _initialize_request(group_id: str, starts: Mapping[ShareKey, tuple[int, int]]) -> InitializeShareGroupStateRequest:
    topic = InitializeShareGroupStateRequest.InitializeStateData
    return InitializeShareGroupStateRequest(
        group_id=group_id,
        topics=[
            topic(
                topic_id=topic_id,
                partitions=[
                    topic.PartitionData(
                        partition=key.partition, state_epoch=starts[key][0], start_offset=starts[key][1]
                    )
                    for key in keys
                ],
            )
            for topic_id, keys in _by_topic(starts).items()
        ],
    )


def _delete_request(group_id: str, keys: Mapping[ShareKey, None]) -> DeleteShareGroupStateRequest:
    topic = DeleteShareGroupStateRequest.DeleteStateData
    return DeleteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            topic(topic_id=topic_id, partitions=[topic.PartitionData(partition=key.partition) for key in of_topic])
            for topic_id, of_topic in _by_topic(keys).items()
        ],
    )


def _summary_request(group_id: str, epochs: Mapping[ShareKey, int]) -> ReadShareGroupStateSummaryRequest:
    topic = ReadShareGroupStateSummaryRequest.ReadStateSummaryData
    return ReadShareGroupStateSummaryRequest(
        group_id=group_id,
        topics=[
            topic(
                topic_id=topic_id,
                partitions=[topic.PartitionData(partition=key.partition, leader_epoch=epochs[key]) for key in keys],
            )
            for topic_id, keys in _by_topic(epochs).items()
        ],
    )


def _read_result(partition: Any) -> ShareState:
    return ShareState(
        partition.state_epoch, -1, partition.start_offset, batches=tuple(batches_of(partition.state_batches))
    )


def _summary_result(partition: Any) -> ShareState:
    return ShareState(
        partition.state_epoch, partition.leader_epoch, partition.start_offset, partition.delivery_complete_count
    )


def _summary_here(coordinator: ShareCoordinator, key: ShareKey, leader_epoch: int) -> Answer[KafkaError | ShareState]:
    return then(coordinator.summary(key, leader_epoch), lambda found: found or NO_STATE)


_READ: Final = _Api[int, ShareState](
    lambda coordinator, key, epoch: coordinator.read(key, epoch), _read_request, _read_result
)
_WRITE: Final = _Api[StateWrite, None](
    lambda coordinator, key, write: coordinator.write(key, write), _write_request, _nothing
)
_INITIALIZE: Final = _Api[tuple[int, int], None](
    lambda coordinator, key, start: coordinator.initialize(key, *start), _initialize_request, _nothing
)
_DELETE: Final = _Api[None, None](lambda coordinator, key, _: coordinator.delete(key), _delete_request, _nothing)
_SUMMARY: Final = _Api[int, ShareState](_summary_here, _summary_request, _summary_result)
