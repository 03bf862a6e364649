"""Measures what consumer groups cost the broker: memory for each group, CPU for each heartbeat and commit.

Many groups with one member each use one connection. The members exist only in the broker, so the measured memory is
only the coordinator's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import broker_cost as cost
from raw import RawClient, prepared

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.join_group import JoinGroupRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.sync_group import SyncGroupRequest

FIND_VERSION, JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, COMMIT_VERSION = 3, 5, 3, 3, 7
TOPIC = "groups"
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06groups\xff\xff\xff\xff"
SESSION_MS = 600_000


class Costs(NamedTuple):
    kilobytes_per_group: float
    join_us: float
    heartbeat_us: float
    commit_us: float


def groups_cost(client: RawClient, pid: int, count: int, heartbeats: int) -> Costs:
    """Let `count` groups form, then send `heartbeats` heartbeats and a tenth as many commits, for all groups in
    turn.
    """
    client.call(FindCoordinatorRequest(key="any"), ApiKey.FIND_COORDINATOR, FIND_VERSION)
    cost.create_topic(client, TOPIC)
    for warm in range(20):
        _join(client, f"warm-{warm}")
    before = cost.resident_megabytes(pid)
    members: list[Any] = []

    def join_all() -> tuple[int, int]:
        members.extend(_join(client, f"group-{number}") for number in range(count))
        return count, 0

    joined = cost.measured(pid, join_all)
    kilobytes = (cost.resident_megabytes(pid) - before) / count * 1000
    beats = [_heartbeat(f"group-{number}", member) for number, member in enumerate(members)]
    commits = [_commit(f"group-{number}", member) for number, member in enumerate(members)]
    _cycle(client, beats, min(count, heartbeats))
    beaten = cost.measured(pid, lambda: _cycle(client, beats, heartbeats))
    committed = cost.measured(pid, lambda: _cycle(client, commits, heartbeats // 10))
    return Costs(kilobytes, joined.cpu_us_per_request, beaten.cpu_us_per_request, committed.cpu_us_per_request)


def _join(client: RawClient, group: str) -> Any:
    """Join a group, and assign partitions as its leader; return the response to JoinGroup."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=SESSION_MS, member_id="", protocol_type="consumer", protocols=[protocol]
    )
    request.member_id = client.call(request, ApiKey.JOIN_GROUP, JOIN_VERSION).member_id
    joined = client.call(request, ApiKey.JOIN_GROUP, JOIN_VERSION)
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=SUBSCRIPTION)
    sync = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )
    answer = client.call(sync, ApiKey.SYNC_GROUP, SYNC_VERSION)
    if joined.error_code or answer.error_code:
        raise RuntimeError(f"{group} was not formed: errors {joined.error_code}, {answer.error_code}")
    return joined


def _heartbeat(group: str, member: Any) -> bytes:
    request = HeartbeatRequest(group_id=group, generation_id=member.generation_id, member_id=member.member_id)
    return prepared(request, ApiKey.HEARTBEAT, HEARTBEAT_VERSION)


def _commit(group: str, member: Any) -> bytes:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        topics=[topic(name=TOPIC, partitions=[partition])],
    )
    return prepared(request, ApiKey.OFFSET_COMMIT, COMMIT_VERSION)


def _cycle(client: RawClient, requests: list[bytes], count: int) -> tuple[int, int]:
    """Send `count` requests in turn with 16 in flight, and check that no response has an error."""
    for start in range(0, count, 16):
        burst = [requests[number % len(requests)] for number in range(start, min(start + 16, count))]
        client.socket.sendall(b"".join(burst))
        for _ in burst:
            frame = client.read_frame()
            if frame[-2:] != b"\0\0":  # the responses of both APIs end with the error code
                raise RuntimeError(f"error {int.from_bytes(frame[-2:], 'big')}")
    return count, 0
