"""Sends the requests of members of consumer groups of the new protocol (KIP-848). Groups and topics are given without
the scenario's prefix.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.interop.differential.calls import GROUP, coordinator
from tests.interop.differential.members import UNKNOWN_TOPIC_ID, group_name, set_group, settle_groups
from tests.interop.differential.messages import Plain
from tests.interop.differential.side import PATIENCE_SECONDS, PAUSE_SECONDS, ScenarioBroken, Side

from oncelog_protocol.api import ApiKey
from oncelog_protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_versioned,
)

REBALANCE_MS: Final = 60_000
"""Rebalance timeout in milliseconds: longer than any test waits for a group."""
LEAVE: Final = -1
LEAVE_FOR_A_WHILE: Final = -2

Partitions = Mapping[str, Sequence[int]]


@dataclass(slots=True)
class ConsumerMember:
    """A member of a consumer group. `epoch` and `assigned` are those of the last response without an error."""

    side: Side
    group: str
    id: str
    epoch: int = 0
    instance: str | None = None
    assigned: Partitions | None = None

    def join(self, label: str, *topics: str, version: int = 1, **more: Any) -> Any:
        """Send the first heartbeat of a member that owns no partitions, and record the response."""
        return self.beat(label, epoch=0, topics=topics, owned={}, version=version, **more)

    def beat(
        self,
        label: str = "",
        *,
        epoch: int | None = None,
        topics: Sequence[str] | None = None,
        owned: Partitions | None = None,
        version: int = 1,
        **more: Any,
    ) -> Any:
        """Send ConsumerGroupHeartbeat and record the response. `topics` is the subscription and `owned` are the
        partitions that the member reports; None means unchanged.
        """
        asked = self._heartbeat(self.epoch if epoch is None else epoch, topics, owned) | more
        answer = self.side.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, asked, label)
        self._take(answer)
        return answer

    def reconcile(self, label: str) -> Any:
        """Send a heartbeat that reports the assigned partitions as owned, and record the response."""
        return self.beat(label, owned=self.assigned or {})

    def settle(self, wanted: Partitions, *topics: str, **more: Any) -> ConsumerMember:
        """Send heartbeats until the member has exactly these partitions; the responses are not recorded. The member
        subscribes to `topics`, by default to the topics of `wanted`. Raises ScenarioBroken.
        """
        expected = {name: sorted(partitions) for name, partitions in wanted.items() if partitions}
        names = topics or tuple(wanted)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            asked = self._heartbeat(self.epoch, names, self.assigned if self.epoch else {}) | more
            answer = self.side.get(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)
            if answer.error_code:
                raise ScenarioBroken(f"{self.side.name}: {answer}")
            before = self.epoch, self.assigned
            self._take(answer)
            if self.assigned == expected and before == (self.epoch, self.assigned):
                return self
            time.sleep(PAUSE_SECONDS)
        raise ScenarioBroken(f"{self.side.name}: {self.id} does not get {wanted}: {answer}")

    def leave(self, label: str = "", *, epoch: int = LEAVE, **more: Any) -> Any:
        """Leave the group, and record the response."""
        return self.beat(label, epoch=epoch, **more)

    def _take(self, answer: Any) -> None:
        if answer is None or answer.error_code:
            return
        self.epoch = max(0, answer.member_epoch)
        if answer.assignment is not None:
            names = {id_: name for name, id_ in self.side.topic_ids.items()}
            assigned = {
                names[bytes(one.topic_id)]: sorted(one.partitions) for one in answer.assignment.topic_partitions
            }
            self.assigned = dict(sorted(assigned.items()))
        elif answer.member_epoch < 0:
            self.assigned = {}

    def _heartbeat(self, epoch: int, topics: Sequence[str] | None, owned: Partitions | None) -> Plain:
        return {
            "group_id": group_name(self.side, self.group),
            "member_id": self.id,
            "member_epoch": epoch,
            "instance_id": self.instance,
            "rebalance_timeout_ms": REBALANCE_MS if epoch == 0 else -1,
            "subscribed_topic_names": None if topics is None else [self.side.own(name) for name in topics],
            "topic_partitions": None
            if owned is None
            else [
                {"topic_id": self.side.topic_ids.get(name, UNKNOWN_TOPIC_ID), "partitions": list(partitions)}
                for name, partitions in owned.items()
            ],
        }


def consumer_group(side: Side, group: str = "g") -> None:
    """Configure a group whose assignments are computed in the heartbeat that requires them, and wait for its
    coordinator.
    """
    set_group(side, group, consumer_assignment_interval_ms=0)
    coordinator(side, group, GROUP)


def subscription(*topics: str) -> bytes:
    """Return the metadata with which a classic member subscribes to topics, given by their full names."""
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 1)


def assignment(topic: str, *partitions: int) -> bytes:
    """Return the assignment of partitions to a classic member; the topic is given by its full name."""
    assigned = ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[assigned]), 1)


def describe_consumer_groups(side: Side, *groups: str, label: str = "", version: int = 1, **more: Any) -> Any:
    """Send ConsumerGroupDescribe and record the response, which describes the groups as they are now."""
    settle_groups(side)
    asked = {"group_ids": [group_name(side, group) for group in groups], **more}
    return side.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, asked, label)
