"""Recognises the usual requests of a member that has nothing to do in its group: its heartbeat only restarts its
session timer, and its commit needs no check of single partitions. Pure.

The functions return None for every other request; the state machine's methods handle these requests. The fast lanes of
`server/lanes` use the functions instead of these methods.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog_broker.coordinator.client import Client
from oncelog_broker.coordinator.group.classic_group import ClassicGroup
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from oncelog_broker.coordinator.group.consumer.epochs import FIRST_MEMBER_EPOCH_VERSION
from oncelog_broker.coordinator.group.consumer.heartbeat import unchanged_member
from oncelog_broker.coordinator.group.machine import GroupMachine
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest


class Stay(NamedTuple):
    """The result of a heartbeat of the consumer protocol that changes nothing: the seconds after which the member's
    session ends without a further heartbeat, and the milliseconds until the member must send it.
    """

    session_seconds: float
    interval_ms: int


def classic_session(
    machine: GroupMachine, request: HeartbeatRequest | OffsetCommitRequest, generation: int
) -> float | None:
    """Return the seconds for which the session of a classic member is extended, if the group is stable and the request
    has the current `generation`."""
    group = machine.groups.get(request.group_id)
    if type(group) is not ClassicGroup or group.state is not GroupState.STABLE or generation != group.generation:
        return None
    member_id, instance_id = request.member_id, request.group_instance_id
    if instance_id is not None and group.static_members.get(instance_id) != member_id:
        return None
    member = group.members.get(member_id)
    return None if member is None else member.session_timeout_ms / 1000


def consumer_stay(machine: GroupMachine, request: ConsumerGroupHeartbeatRequest, client: Client) -> Stay | None:
    """Return what follows from a heartbeat of the consumer protocol that changes nothing."""
    group = machine.groups.get(request.group_id)
    if type(group) is not ConsumerGroup or unchanged_member(group, request, client, machine.topics()) is None:
        return None
    settings = machine.consumer_settings(request.group_id)
    return Stay(settings.session_timeout_ms / 1000, settings.heartbeat_interval_ms)


def commits_in_own_epoch(machine: GroupMachine, request: OffsetCommitRequest, version: int) -> bool:
    """Whether a member of the consumer protocol commits in its current epoch, so that it may commit any partition.
    `version` is the version of the request."""
    group = machine.groups.get(request.group_id)
    if type(group) is not ConsumerGroup or version < FIRST_MEMBER_EPOCH_VERSION:
        return False
    member = group.members.get(request.member_id)
    return member is not None and member.classic is None and member.epoch == request.generation_id_or_member_epoch
