"""Sends the requests of classic consumer groups. Groups are given without the scenario's prefix; an empty name remains
empty.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.interop.differential.messages import Plain
from tests.interop.differential.side import PATIENCE_SECONDS, PAUSE_SECONDS, ScenarioBroken, Side

from oncelog_protocol.api import ApiKey
from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.describe_configs import ResourceType
from oncelog_protocol.messages.incremental_alter_configs import ConfigOperation

SUBSCRIPTION: Final = b"\0\1\0\0\0\0\xff\xff\xff\xff"
"""The subscription metadata of a consumer: version 1, no topics."""
RANGE: Final = (("range", SUBSCRIPTION),)
ASSIGNMENT: Final = b"assigned"
UNKNOWN_TOPIC_ID: Final = b"\7" * 16
SESSION_MS: Final = 30_000
REBALANCE_MS: Final = 60_000
"""Rebalance timeout in milliseconds: longer than any test waits for a group."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, in one generation."""

    id: str
    generation: int
    instance: str | None = None


def group_name(side: Side, group: str) -> str:
    return side.own(group) if group else ""


def join_request(
    side: Side,
    group: str,
    member: str = "",
    *,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    instance: str | None = None,
    protocol_type: str = "consumer",
    protocols: Sequence[tuple[str, bytes]] = RANGE,
) -> Plain:
    return {
        "group_id": group_name(side, group),
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": rebalance_ms,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": protocol_type,
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols],
    }


def join(
    side: Side,
    group: str,
    member: str = "",
    label: str = "",
    *,
    version: int = 7,
    connection: str = "main",
    patience: float = 20.0,
    **body: Any,
) -> Any:
    asked = join_request(side, group, member, **body)
    return side.ask(ApiKey.JOIN_GROUP, version, asked, label, connection=connection, patience=patience)


def joined(side: Side, group: str, *, version: int = 7, **body: Any) -> Member:
    """Return a new member; its requests are not recorded for the comparison. Raises ScenarioBroken."""
    answer = side.get(ApiKey.JOIN_GROUP, version, join_request(side, group, **body))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = side.get(ApiKey.JOIN_GROUP, version, join_request(side, group, answer.member_id, **body))
    if answer.error_code:
        raise ScenarioBroken(f"{side.name}: {answer}")
    side.plain.symbols.name("member", answer.member_id)
    return Member(answer.member_id, answer.generation_id, body.get("instance"))


def only_member(side: Side, group: str, **body: Any) -> Member:
    """Return the only member of a stable group. Raises ScenarioBroken."""
    member = joined(side, group, **body)
    asked = sync_request(side, group, member, [(member.id, ASSIGNMENT)], body.get("protocol_type", "consumer"))
    answer = side.get(ApiKey.SYNC_GROUP, 5, asked)
    if answer.error_code:
        raise ScenarioBroken(f"{side.name}: {answer}")
    return member


def sync_request(
    side: Side,
    group: str,
    member: Member,
    assignments: Sequence[tuple[str, bytes]] = (),
    protocol_type: str | None = "consumer",
    protocol: str | None = "range",
) -> Plain:
    return {
        "group_id": group_name(side, group),
        "generation_id": member.generation,
        "member_id": member.id,
        "group_instance_id": member.instance,
        "protocol_type": protocol_type,
        "protocol_name": protocol,
        "assignments": [{"member_id": one, "assignment": data} for one, data in assignments],
    }


def sync(
    side: Side,
    group: str,
    member: Member,
    assignments: Sequence[tuple[str, bytes]] = (),
    label: str = "",
    *,
    version: int = 5,
    **names: str | None,
) -> Any:
    return side.ask(ApiKey.SYNC_GROUP, version, sync_request(side, group, member, assignments, **names), label)


def heartbeat(side: Side, group: str, member: Member, label: str = "", *, version: int = 4) -> None:
    asked = {
        "group_id": group_name(side, group),
        "generation_id": member.generation,
        "member_id": member.id,
        "group_instance_id": member.instance,
    }
    side.ask(ApiKey.HEARTBEAT, version, asked, label)


def leave(side: Side, group: str, *members: tuple[str, str | None], label: str = "", version: int = 5) -> None:
    """Send LeaveGroup for `members`, given by member id and instance id; before version 3 only the first of them is
    sent.
    """
    asked: Plain = {"group_id": group_name(side, group)}
    if version < 3:
        asked["member_id"] = members[0][0]
    else:
        asked["members"] = [{"member_id": member, "group_instance_id": instance} for member, instance in members]
    side.ask(ApiKey.LEAVE_GROUP, version, asked, label)


def set_group(side: Side, group: str, **configs: str | int) -> None:
    """Set configuration keys of a group; keys are written with underscores in place of dots. Raises ScenarioBroken."""
    resource = {
        "resource_type": int(ResourceType.GROUP),
        "resource_name": side.own(group),
        "configs": [
            {"name": key.replace("_", "."), "config_operation": int(ConfigOperation.SET), "value": str(value)}
            for key, value in configs.items()
        ],
    }
    answer = side.get(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    if answer.responses[0].error_code:
        raise ScenarioBroken(f"{side.name}: {answer}")


def await_setting(side: Side, group: str, key: str, value: str) -> None:
    """Wait until a key of a group has this value, because Apache Kafka's brokers learn of a change after the
    response.
    """
    resource = {
        "resource_type": int(ResourceType.GROUP),
        "resource_name": side.own(group),
        "configuration_keys": [key],
    }

    def is_there(answer: Any) -> bool:
        return [one.value for one in answer.results[0].configs] == [value]

    side.get(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]}, until=is_there)


def settle_groups(side: Side) -> None:
    """Let the group coordinator write a record, because Apache Kafka describes a group in the state that it had when
    the coordinator last wrote a record.
    """
    offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{"name": "__consumer_offsets", "partitions": [offset]}]
    nobody = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    side.get(ApiKey.OFFSET_COMMIT, 7, {"group_id": "settled", "topics": topics, **nobody})


def describe_groups(side: Side, *groups: str, label: str = "", version: int = 6) -> None:
    """Describe the groups as they are now, and record the responses."""
    settle_groups(side)
    asked = {"groups": [group_name(side, group) for group in groups]}
    side.ask(ApiKey.DESCRIBE_GROUPS, version, asked, label)


def await_state(side: Side, group: str, state: str) -> None:
    """Wait until a group has this state. Raises ScenarioBroken if the group does not reach the state within
    `PATIENCE_SECONDS`.
    """
    asked = {"groups": [group_name(side, group)]}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if side.get(ApiKey.DESCRIBE_GROUPS, 5, asked).groups[0].group_state == state:
            return
        time.sleep(PAUSE_SECONDS)
    raise ScenarioBroken(f"{side.name}: {group} is not {state}")


def delete_groups(side: Side, *groups: str, label: str = "", version: int = 2) -> None:
    asked = {"groups_names": [group_name(side, group) for group in groups]}
    side.ask(ApiKey.DELETE_GROUPS, version, asked, label)


def commit_offset(
    side: Side,
    group: str,
    label: str = "",
    *,
    topic: str = "a",
    partitions: Sequence[int] = (0,),
    offset: int = 5,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    metadata: str | None = "m",
    leader_epoch: int = -1,
    retention_ms: int = -1,
    version: int = 7,
) -> None:
    offsets = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": leader_epoch,
            "committed_metadata": metadata,
        }
        for partition in partitions
    ]
    asked = {
        "group_id": group_name(side, group),
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "group_instance_id": instance,
        "retention_time_ms": retention_ms,
        "topics": [{**topic_of(side, topic), "partitions": offsets}],
    }
    side.ask(ApiKey.OFFSET_COMMIT, version, asked, label)


def topic_of(side: Side, topic: str) -> Plain:
    """Return the name and the topic id of a topic, of which the version of the request selects one; an unknown topic
    has an id that no broker generates.
    """
    return {"name": side.own(topic), "topic_id": side.topic_ids.get(topic, UNKNOWN_TOPIC_ID)}


def all_offsets(
    side: Side,
    group: str,
    label: str = "",
    *,
    version: int = 7,
    require_stable: bool = False,
    member: str | None = None,
    epoch: int = -1,
) -> None:
    """Send OffsetFetch for all offsets of a group (versions 2 and later); the member id and the member epoch are sent
    from version 9 on.
    """
    wanted: Plain = {"group_id": group_name(side, group), "topics": None}
    asked = wanted
    if version >= 8:
        asked = {"groups": [wanted | {"member_id": member, "member_epoch": epoch}]}
    if version >= 7:
        asked["require_stable"] = require_stable
    side.ask(ApiKey.OFFSET_FETCH, version, asked, label)


def delete_offsets(side: Side, group: str, label: str, topic: str = "a", partitions: Sequence[int] = (0,)) -> None:
    wanted = [{"partition_index": partition} for partition in partitions]
    asked = {"group_id": group_name(side, group), "topics": [{"name": side.own(topic), "partitions": wanted}]}
    side.ask(ApiKey.OFFSET_DELETE, 0, asked, label)
