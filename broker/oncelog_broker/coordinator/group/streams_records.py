"""The records of streams groups (KIP-1071): values in memory, versioned bytes in the log. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Encoded
from oncelog_broker.coordinator.group.record_kinds import Kinds, group_kind, member_kind
from oncelog_broker.coordinator.group.streams_tasks import TaskSet, listed, tasks_of
from oncelog_protocol.coordinator_records import streams_groups as schema
from oncelog_protocol.coordinator_records.streams_groups import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

TargetTasks = StreamsGroupTargetAssignmentMemberValue.TaskIds


class StreamsGroupEpochRecord(NamedTuple):
    """The epoch of a streams group; None is the tombstone of the group."""

    group_id: str
    value: StreamsGroupMetadataValue | None


class StreamsMemberRecord(NamedTuple):
    """The metadata of a member; None is the tombstone of the member."""

    group_id: str
    member_id: str
    value: StreamsGroupMemberMetadataValue | None


class StreamsTargetEpochRecord(NamedTuple):
    """The group epoch for which the targets were computed, or None."""

    group_id: str
    value: StreamsGroupTargetAssignmentMetadataValue | None


class StreamsTargetRecord(NamedTuple):
    """The target assignment of a member, or None. `encoded` has the bytes of the record if they were computed before
    the step that logs the record."""

    group_id: str
    member_id: str
    value: TaskSet | None
    encoded: Encoded | None = None


class StreamsCurrentRecord(NamedTuple):
    """The current assignment of a member with its epoch, or None."""

    group_id: str
    member_id: str
    value: StreamsGroupCurrentMemberAssignmentValue | None


class StreamsTopologyRecord(NamedTuple):
    """The topology of a group, or None."""

    group_id: str
    value: StreamsGroupTopologyValue | None


StreamsGroupRecord = (
    StreamsGroupEpochRecord
    | StreamsMemberRecord
    | StreamsTargetEpochRecord
    | StreamsTargetRecord
    | StreamsCurrentRecord
    | StreamsTopologyRecord
)


def _target(
    group_id: str, member_id: str, value: StreamsGroupTargetAssignmentMemberValue | None
) -> StreamsTargetRecord:
    if value is None:
        return StreamsTargetRecord(group_id, member_id, None)
    tasks = TaskSet(tasks_of(value.active_tasks), tasks_of(value.standby_tasks), tasks_of(value.warmup_tasks))
    return StreamsTargetRecord(group_id, member_id, tasks)


def _target_message(record: StreamsTargetRecord) -> StreamsGroupTargetAssignmentMemberValue | None:
    if record.value is None:
        return None

    def ids(subtopology: str, partitions: list[int]) -> TargetTasks:
        return TargetTasks(subtopology_id=subtopology, partitions=partitions)

    return StreamsGroupTargetAssignmentMemberValue(
        active_tasks=listed(record.value.active, ids),
        standby_tasks=listed(record.value.standby, ids),
        warmup_tasks=listed(record.value.warmup, ids),
    )


KINDS: Final = Kinds(
    (
        group_kind(schema.GROUP_EPOCH_KEY, StreamsGroupEpochRecord, StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        member_kind(
            schema.MEMBER_KEY, StreamsMemberRecord, StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue
        ),
        group_kind(
            schema.ASSIGNMENT_EPOCH_KEY,
            StreamsTargetEpochRecord,
            StreamsGroupTargetAssignmentMetadataKey,
            StreamsGroupTargetAssignmentMetadataValue,
        ),
        member_kind(
            schema.TARGET_KEY,
            StreamsTargetRecord,
            StreamsGroupTargetAssignmentMemberKey,
            StreamsGroupTargetAssignmentMemberValue,
            _target,
            _target_message,
        ),
        member_kind(
            schema.CURRENT_KEY,
            StreamsCurrentRecord,
            StreamsGroupCurrentMemberAssignmentKey,
            StreamsGroupCurrentMemberAssignmentValue,
        ),
        group_kind(schema.TOPOLOGY_KEY, StreamsTopologyRecord, StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    )
)


def encode(record: StreamsGroupRecord) -> Encoded:
    """Return the bytes of a record. Raises UnencodableMessage for values that do not fit."""
    if isinstance(record, StreamsTargetRecord) and record.encoded is not None:
        return record.encoded
    return KINDS.encode(record)
