"""Builds the heartbeats of the consumer protocol (KIP-848). The code is pure: no clock, no I/O.

The first heartbeat, and the first after an error, contains all fields, because the coordinator's state is unknown.
Later heartbeats contain only the fields that have changed since the last heartbeat with a response.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog.config import ConsumerConfig
from oncelog_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2
"""The epoch with which a static member leaves temporarily; the group keeps the member's partitions for it until its
session times out.
"""
FIRST_INTERVAL_MS: Final = 5_000
"""Milliseconds between heartbeats until the broker's first response, which contains the interval to use."""

IdPartition = tuple[bytes, int]
"""Topic id and partition number."""
TopicPartitions = ConsumerGroupHeartbeatRequest.TopicPartitions


class Said(NamedTuple):
    """The fields of a heartbeat that a member sends about itself; None means that the field has no value."""

    topics: tuple[str, ...] | None
    pattern: str | None
    owned: frozenset[IdPartition]


class EpochHeartbeat:
    """The state from which the next heartbeat of a member is built. `epoch` is the epoch of the member, 0 without
    membership.
    `interval_s` is the number of seconds until the next heartbeat.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._heard: Said | None = None
        self.epoch = JOINING_EPOCH
        self.interval_s = FIRST_INTERVAL_MS / 1000

    def is_news(self, said: Said) -> bool:
        """Return whether `said` (the fields to send) contains a change that the coordinator has not received."""
        return said != self._heard

    def request(self, member_id: str, said: Said) -> ConsumerGroupHeartbeatRequest:
        config, heard = self._config, self._heard
        joins = self.epoch == JOINING_EPOCH
        if joins:
            # a joining member owns no partitions, because its partitions were revoked or lost
            said = said._replace(owned=frozenset())
        is_full = heard is None or joins
        request = ConsumerGroupHeartbeatRequest(
            group_id=config.group_id or "",
            member_id=member_id,
            member_epoch=self.epoch,
            instance_id=config.group_instance_id,
        )
        if is_full:
            request.rack_id = config.client_rack or None
            request.rebalance_timeout_ms = config.max_poll_interval_ms
            request.server_assignor = config.group_remote_assignor
        if is_full or heard is None or (said.topics, said.pattern) != (heard.topics, heard.pattern):
            request.subscribed_topic_names = list(said.topics or ())
            if said.pattern is not None or (heard is not None and heard.pattern):
                request.subscribed_topic_regex = said.pattern or ""
        if is_full or heard is None or said.owned != heard.owned:
            request.topic_partitions = _by_topic(said.owned)
        return request

    def leaving(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        is_static = self._config.group_instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._config.group_id or "",
            member_id=member_id,
            member_epoch=STATIC_LEAVING_EPOCH if is_static else LEAVING_EPOCH,
            instance_id=self._config.group_instance_id,
        )

    def answered(self, response: ConsumerGroupHeartbeatResponse, said: Said) -> frozenset[IdPartition] | None:
        """Record that the coordinator has received `said` and responded. Return the new target assignment; None means
        unchanged.
        """
        self._heard = said._replace(owned=frozenset()) if self.epoch == JOINING_EPOCH else said
        self.epoch = response.member_epoch
        if response.heartbeat_interval_ms > 0:
            self.interval_s = response.heartbeat_interval_ms / 1000
        if response.assignment is None:
            return None
        return frozenset(
            (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
        )

    def failed(self) -> None:
        """Record a failure: the coordinator's state is unknown, so the next heartbeat has all fields."""
        self._heard = None

    def begin_anew(self) -> None:
        """Record that the member has left or was fenced: the next heartbeat joins."""
        self._heard, self.epoch = None, JOINING_EPOCH


def _by_topic(partitions: Iterable[IdPartition]) -> list[TopicPartitions]:
    grouped: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        grouped.setdefault(topic_id, []).append(index)
    return [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in grouped.items()]
