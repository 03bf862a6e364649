"""The records of streams groups (KIP-1071): their values in memory, and their versioned bytes in the log. Pure."""

from __future__ import annotations

from typing import Final

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
from oncelog_protocol.light_classes import NamedTuple

TargetTasks = StreamsGroupTargetAssignmentMemberValue.TaskIds


class StreamsGroupEpochRecord(NamedTuple):
    """The record with the epoch of a streams group; a value of None is the tombstone of the group."""

    group_id: str
    value: StreamsGroupMetadataValue | None


class StreamsMemberRecord(NamedTuple):
    """The record with the metadata of a member; a value of None is the tombstone of the member."""

    group_id: str
    member_id: str
    value: StreamsGroupMemberMetadataValue | None


class StreamsTargetEpochRecord(NamedTuple):
    """The record with the group epoch for which the targets were computed; a value of None is a tombstone."""

    group_id: str
    value: StreamsGroupTargetAssignmentMetadataValue | None


class StreamsTargetRecord(NamedTuple):
    """The record with the target assignment of a member; a value of None is a tombstone. `encoded`: the bytes of the
    record, if a background job has already encoded them; otherwise None.
    """

    group_id: str
    member_id: str
    value: TaskSet | None
    encoded: Encoded | None = None


class StreamsCurrentRecord(NamedTuple):
    """The record with the current assignment and the epoch of a member; a value of None is a tombstone."""

    group_id: str
    member_id: str
    value: StreamsGroupCurrentMemberAssignmentValue | None


class StreamsTopologyRecord(NamedTuple):
    """The record with the topology of a group; a value of None is a tombstone."""

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
    """Return the bytes (key and value) of a record. Raises UnencodableMessage for values that the record's schema
    cannot represent.
    """
    if isinstance(record, StreamsTargetRecord) and record.encoded is not None:
        return record.encoded
    return KINDS.encode(record)
