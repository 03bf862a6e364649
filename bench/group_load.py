"""Members of consumer groups for load: each is the only member of its group, and sends prepared requests over its own
connection.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from raw import RawClient, decoded, prepared

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from oncelog_protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog_protocol.messages.heartbeat import HeartbeatRequest
from oncelog_protocol.messages.join_group import JoinGroupRequest
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest
from oncelog_protocol.messages.sync_group import SyncGroupRequest

HEARTBEAT_VERSION: Final = 4
COMMIT_VERSION: Final = 9
CONSUMER_HEARTBEAT_VERSION: Final = 1
SESSION_MS: Final = 30_000
GROUP: Final = 0
"""The kind of coordinator that FindCoordinator looks for."""
MEMBER_ID_REQUIRED: Final = 79
_NUMBERS: Final = itertools.count()


class ClassicMember:
    """A member of a group of the classic protocol."""

    def __init__(self, port: int, topic: str) -> None:
        """Join a new group, which reads partition 0 of `topic`."""
        self.client = RawClient(port)
        self.topic = topic
        self.group_id = f"{type(self).__name__}-{next(_NUMBERS)}"
        self.member_id, self.generation = "", -1
        self.offset = 0
        find = FindCoordinatorRequest(key=self.group_id, key_type=GROUP)
        while self.client.call(find, ApiKey.FIND_COORDINATOR, 3).error_code:  # the internal topic is being created
            pass
        self.join()

    def join(self) -> None:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        answer = None
        while answer is None or answer.error_code == MEMBER_ID_REQUIRED:
            answer = self._ask(
                JoinGroupRequest(
                    group_id=self.group_id, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS,
                    member_id=self.member_id, protocol_type="consumer", protocols=[protocol],
                ),
                ApiKey.JOIN_GROUP, 7,
            )  # fmt: skip
            self.member_id = answer.member_id
        self.generation = answer.generation_id
        assigned = SyncGroupRequest.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"")
        self._ask(
            SyncGroupRequest(
                group_id=self.group_id, generation_id=self.generation, member_id=self.member_id,
                protocol_type="consumer", protocol_name="range", assignments=[assigned],
            ),
            ApiKey.SYNC_GROUP, 5,
        )  # fmt: skip

    def heartbeat(self) -> tuple[ApiKey, int, bytes]:
        """Return a request to repeat: its API, version and frame."""
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id, group_instance_id=None
        )
        return ApiKey.HEARTBEAT, HEARTBEAT_VERSION, prepared(request, ApiKey.HEARTBEAT, HEARTBEAT_VERSION)

    def commit(self) -> tuple[ApiKey, int, bytes]:
        """Return a request with the next offset."""
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        self.offset += 1
        partition = topic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.offset, committed_leader_epoch=0, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group_id, generation_id_or_member_epoch=self.generation, member_id=self.member_id,
            topics=[topic(name=self.topic, partitions=[partition])],
        )  # fmt: skip
        return ApiKey.OFFSET_COMMIT, COMMIT_VERSION, prepared(request, ApiKey.OFFSET_COMMIT, COMMIT_VERSION)

    def repeat(self, requests: list[tuple[ApiKey, int, bytes]]) -> tuple[int, int]:
        """Send the requests one after the other; returns their number, and 0 bytes of records."""
        frame = b""
        for _, _, request in requests:
            self.client.socket.sendall(request)
            frame = self.client.read_frame()
        api, version, _ = requests[-1]
        answer: Any = decoded(frame, api, version)
        code = answer.topics[0].partitions[0].error_code if api is ApiKey.OFFSET_COMMIT else answer.error_code
        if code:
            raise RuntimeError(f"{api.name} failed: error {code}")
        return len(requests), 0

    def close(self) -> None:
        self.client.close()

    def _ask(self, request: Any, api: ApiKey, version: int) -> Any:
        answer = self.client.call(request, api, version)
        if answer.error_code not in (0, MEMBER_ID_REQUIRED):
            raise RuntimeError(f"{api.name} failed: error {answer.error_code}")
        return answer


class ConsumerMember(ClassicMember):
    """A member of a group of the consumer protocol (KIP-848)."""

    def join(self) -> None:
        self.member_id, self.generation = "chosen-by-the-client", 0
        assigned: Any = None
        while not assigned or not assigned.topic_partitions:  # the assignment is computed in the background
            answer = self._ask(self._heartbeat(), ApiKey.CONSUMER_GROUP_HEARTBEAT, CONSUMER_HEARTBEAT_VERSION)
            self.generation, assigned = answer.member_epoch, answer.assignment

    def heartbeat(self) -> tuple[ApiKey, int, bytes]:
        api, version = ApiKey.CONSUMER_GROUP_HEARTBEAT, CONSUMER_HEARTBEAT_VERSION
        return api, version, prepared(self._heartbeat(), api, version)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        joins = self.generation == 0
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.generation,
            rebalance_timeout_ms=SESSION_MS if joins else -1,
            subscribed_topic_names=[self.topic] if joins else None, topic_partitions=[] if joins else None,
        )  # fmt: skip
