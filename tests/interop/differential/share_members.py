"""Sends the requests of members of share groups (KIP-932). Groups and topics are given without the scenario's
prefix.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.interop.differential.calls import GROUP, coordinator
from tests.interop.differential.members import await_setting, group_name, set_group
from tests.interop.differential.messages import Plain
from tests.interop.differential.side import PATIENCE_SECONDS, PAUSE_SECONDS, ScenarioBroken, Side

from oncelog_protocol.api import ApiKey
from oncelog_protocol.messages.share_fetch import CLOSE_SESSION, OPEN_SESSION, AcknowledgeType

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
FILLED_MS: Final = 400
"""How long a ShareFetch waits that must return records; it is repeated if it returns none."""
EMPTY_MS: Final = 150
"""How long a ShareFetch waits that returns no records."""

Acknowledged = tuple[int, int, Sequence[int]]
"""First offset, last offset, and acknowledge types."""
Acknowledgements = Mapping[tuple[str, int], Sequence[Acknowledged]]
"""Acknowledgements by topic and partition."""


@dataclass(slots=True)
class ShareMember:
    """A member of a share group. `session_epoch` is the epoch of the next request of its share session."""

    side: Side
    group: str
    id: str
    epoch: int = 0
    session_epoch: int = OPEN_SESSION
    connection: str = "main"
    topics: Sequence[str] = ()
    """The topics to which the member subscribed last."""

    # --- heartbeats

    def beat(
        self, label: str = "", *, epoch: int | None = None, topics: Sequence[str] | None = None, **more: Any
    ) -> Any:
        """Send ShareGroupHeartbeat and record the response; the member's epoch changes if there was no error."""
        self.topics = self.topics if topics is None else topics
        asked = self._heartbeat(self.epoch if epoch is None else epoch, topics) | more
        answer = self.side.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, asked, label)
        if not answer.error_code:
            self.epoch = max(0, answer.member_epoch)
        return answer

    def settle(self, wanted: Mapping[str, Sequence[int]], *, topics: Sequence[str] | None = None) -> ShareMember:
        """Send heartbeats until the member has these partitions; the responses are not recorded. The member subscribes
        to `topics`, by default to the topics of `wanted`. Raises ScenarioBroken.
        """
        self.topics = list(wanted) if topics is None else topics
        expected = {self.side.topic_ids[name]: sorted(partitions) for name, partitions in wanted.items() if partitions}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            answer = self.side.get(ApiKey.SHARE_GROUP_HEARTBEAT, 1, self.full_heartbeat())
            if answer.error_code:
                raise ScenarioBroken(f"{self.side.name}: {answer}")
            self.epoch = answer.member_epoch
            if answer.assignment and assigned(answer) == expected:
                return self
            time.sleep(PAUSE_SECONDS)
        raise ScenarioBroken(f"{self.side.name}: {self.id} does not get {wanted}: {answer}")

    def full_heartbeat(self) -> Plain:
        """Return a heartbeat to which the response has the entire assignment."""
        return self._heartbeat(self.epoch, self.topics)

    def leave(self, label: str = "") -> None:
        self.beat(label, epoch=-1)

    def _heartbeat(self, epoch: int, topics: Sequence[str] | None) -> Plain:
        return {
            "group_id": group_name(self.side, self.group),
            "member_id": self.id,
            "member_epoch": epoch,
            "subscribed_topic_names": None if topics is None else [self.side.own(name) for name in topics],
        }

    # --- records

    def fetch(
        self,
        label: str = "",
        topics: Mapping[str, Sequence[int]] | None = None,
        *,
        epoch: int | None = None,
        wait_ms: int = FILLED_MS,
        version: int = 2,
        **more: Any,
    ) -> Any:
        """Send ShareFetch and record the response; the session's epoch rises if there was no error. Without `epoch`,
        the request has the epoch that the broker expects.

        With the default `wait_ms`, the request is repeated until a response has records, because Apache Kafka may
        respond without records although some are available. Only the last response is recorded.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self.quiet_fetch(topics, epoch=epoch, wait_ms=wait_ms, version=version, **more)
            if wait_ms != FILLED_MS or answer.error_code or _is_filled(answer) or time.monotonic() > deadline:
                break
            epoch = None
        self.side.record(ApiKey.SHARE_FETCH, version, label, answer)
        return answer

    def quiet_fetch(
        self,
        topics: Mapping[str, Sequence[int]] | None = None,
        *,
        acknowledged: Acknowledgements | None = None,
        forgotten: Mapping[str, Sequence[int]] | None = None,
        epoch: int | None = None,
        wait_ms: int = FILLED_MS,
        version: int = 2,
        **more: Any,
    ) -> Any:
        """Send ShareFetch without recording the response."""
        sent = self.session_epoch if epoch is None else epoch
        asked = {
            "group_id": group_name(self.side, self.group),
            "member_id": self.id,
            "share_session_epoch": sent,
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": self._topics(topics or {}, acknowledged or {}),
            "forgotten_topics_data": [
                {"topic_id": self._topic_id(name), "partitions": list(partitions)}
                for name, partitions in (forgotten or {}).items()
            ],
            **more,
        }
        answer = self.side.get(ApiKey.SHARE_FETCH, version, asked, connection=self.connection, retried=())
        self._continue(answer, sent)
        return answer

    def acknowledge(
        self,
        label: str,
        acknowledged: Acknowledgements,
        *,
        epoch: int | None = None,
        version: int = 2,
        **more: Any,
    ) -> Any:
        """Send ShareAcknowledge and record the response; the session's epoch rises if there was no error."""
        answer = self.quiet_acknowledge(acknowledged, epoch=epoch, version=version, **more)
        self.side.record(ApiKey.SHARE_ACKNOWLEDGE, version, label, answer)
        return answer

    def quiet_acknowledge(
        self, acknowledged: Acknowledgements, *, epoch: int | None = None, version: int = 2, **more: Any
    ) -> Any:
        """Send ShareAcknowledge without recording the response."""
        sent = self.session_epoch if epoch is None else epoch
        asked = {
            "group_id": group_name(self.side, self.group),
            "member_id": self.id,
            "share_session_epoch": sent,
            "topics": self._topics({}, acknowledged),
            **more,
        }
        answer = self.side.get(ApiKey.SHARE_ACKNOWLEDGE, version, asked, connection=self.connection, retried=())
        self._continue(answer, sent)
        return answer

    def close(self, label: str = "close", **more: Any) -> None:
        """Close the session with a ShareFetch that fetches nothing."""
        nothing = {"wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "batch_size": 0}
        self.fetch(label, epoch=CLOSE_SESSION, **nothing, **more)

    def _continue(self, answer: Any, sent: int) -> None:
        if answer is not None and not answer.error_code:
            self.session_epoch = OPEN_SESSION if sent == CLOSE_SESSION else sent + 1

    def _topics(self, topics: Mapping[str, Sequence[int]], acknowledged: Acknowledgements) -> list[Plain]:
        wanted: dict[str, dict[int, Sequence[Acknowledged]]] = {
            name: dict.fromkeys(partitions, ()) for name, partitions in topics.items()
        }
        for (name, partition), batches in acknowledged.items():
            wanted.setdefault(name, {})[partition] = batches
        return [
            {
                "topic_id": self._topic_id(name),
                "partitions": [
                    {
                        "partition_index": partition,
                        "acknowledgement_batches": [
                            {"first_offset": first, "last_offset": last, "acknowledge_types": [int(t) for t in types]}
                            for first, last, types in batches
                        ],
                    }
                    for partition, batches in partitions.items()
                ],
            }
            for name, partitions in wanted.items()
        ]

    def _topic_id(self, name: str) -> bytes:
        return self.side.topic_ids.get(name, name.encode().ljust(16, b"?"))


def _is_filled(answer: Any) -> bool:
    """Return whether a ShareFetch response has records or errors."""
    found = [one for topic in answer.responses for one in topic.partitions]
    return any(one.acquired_records or one.error_code or one.acknowledge_error_code for one in found)


def assigned(answer: Any) -> dict[bytes, list[int]]:
    """Return the assigned partitions of a heartbeat response, by topic id."""
    return {bytes(one.topic_id): sorted(one.partitions) for one in answer.assignment.topic_partitions}


def share_group(side: Side, group: str = "g", **configs: str | int) -> None:
    """Configure a share group that reads topics from the beginning, and wait for its coordinator and its settings."""
    configure(side, group, **{"share_auto_offset_reset": "earliest", **configs})
    coordinator(side, group, GROUP)


def configure(side: Side, group: str, **configs: str | int) -> None:
    """Set configuration keys of a group, and wait until they are in force."""
    set_group(side, group, **configs)
    for key, value in configs.items():
        await_setting(side, group, key.replace("_", "."), str(value))


def reader(side: Side, topics: Mapping[str, Sequence[int]], member: str = "m", group: str = "g") -> ShareMember:
    """Return a member that has these partitions."""
    return ShareMember(side, group, member).settle(topics)


def describe_share_groups(side: Side, *groups: str, label: str = "", **more: Any) -> Any:
    asked = {"group_ids": [group_name(side, group) for group in groups], **more}
    return side.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, asked, label)


def settle_shares(side: Side) -> None:
    """Let the share coordinator write a record, because Apache Kafka describes offsets in the state that they had when
    the coordinator last wrote a record. Raises ScenarioBroken.
    """
    name = next(iter(side.topic_ids))
    topic = {"topic_name": side.own(name), "partitions": [{"partition_index": 0, "start_offset": 0}]}
    answer = side.get(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": side.own("settled"), "topics": [topic]})
    if answer.error_code:
        raise ScenarioBroken(f"{side.name}: {answer}")


def describe_share_offsets(
    side: Side,
    group: str,
    topics: Mapping[str, Sequence[int]] | None = None,
    label: str = "",
    *,
    version: int = 1,
    **options: Any,
) -> Any:
    """Send DescribeShareGroupOffsets; without `topics`, for all topics of the group."""
    settle_shares(side)
    wanted = None if topics is None else [{"topic_name": side.own(n), "partitions": list(p)} for n, p in topics.items()]
    asked = {"groups": [{"group_id": group_name(side, group), "topics": wanted}]}
    return side.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, asked, label, **options)
