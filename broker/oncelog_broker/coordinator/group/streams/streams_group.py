"""One streams group: its topology, members, epochs, targets, and the owners of each task. Pure.

The epochs are the same as in the consumer protocol (`consumer_group`). The group epoch rises when a property changes on
which the assignment depends. The assignment epoch is the group epoch for which the target was computed. The member
epoch is the assignment epoch to which the member was reconciled.

Only `replay` changes the logged state. Invariants:
- `active_owners` maps each active task that is assigned or pending revocation to the member that has the task.
- `copies` maps each standby or warm-up task that is assigned or pending revocation to the members that have the task.
- `held_bytes` is the memory of the topology and all members. `held`, the broker's total for all groups, includes these
  bytes until `let_go` is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.streams.configured_topology import ConfiguredTopology
from oncelog_broker.coordinator.group.streams.endpoints import EndpointPartitions
from oncelog_broker.coordinator.group.streams.streams_member import LEAVING_EPOCH, StreamsMember, StreamsMemberState
from oncelog_broker.coordinator.group.streams.streams_topology import StreamsTopology
from oncelog_broker.coordinator.group.streams_records import (
    StreamsCurrentRecord,
    StreamsGroupEpochRecord,
    StreamsGroupRecord,
    StreamsMemberRecord,
    StreamsTargetEpochRecord,
    StreamsTargetRecord,
    StreamsTopologyRecord,
)
from oncelog_broker.coordinator.group.streams_tasks import NO_TARGET, NOTHING, CurrentTasks, Role, Task, TaskSet
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.coordinator_records.streams_groups import (
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMetadataValue,
)
from oncelog_protocol.errors import ErrorCode, KafkaError

STREAMS_PROTOCOL: Final = "streams"
FIRST_EPOCH: Final = 1
"""The group epoch and assignment epoch of a group that was never logged. The first member raises the group epoch to 2,
as in Kafka 4.3."""
NO_TOPOLOGY_VALIDATED: Final = -1

Configs = Mapping[str, str]
"""The settings of a group on which an assignment depends."""


class StreamsGroupState(Enum):
    """The state of a streams group; the value is the name in the protocol."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics of the topology are missing or have the wrong number of partitions."""
    ASSIGNING = "Assigning"
    """The target assignment was computed for an older group epoch."""
    RECONCILING = "Reconciling"
    """At least one member has not reached its target assignment yet."""
    STABLE = "Stable"
    DEAD = "Dead"


class StreamsGroup:
    """A streams group. A new coordinator does not know the fields that are described here, because they are not logged.
    `checked_topics` is the view of the cluster's topics (TopicView) whose hash the group last compared with its own
    metadata hash. `configured` is the result of comparing the group's topology with this view. Both fields
    (`checked_topics`, `configured`) are None after loading. `shutdown_requested_by` is the id of the member that has
    requested the shutdown of all members. `delayed_until_ms` is the end of the initial rebalance delay (wall time in
    ms); 0 means no delay. `endpoint_epoch` rises when the tasks of a member with an endpoint change."""

    __slots__ = (
        "active_owners",
        "assigned_at_ms",
        "assignment_configs",
        "assignment_epoch",
        "checked_topics",
        "configured",
        "copies",
        "delayed_until_ms",
        "endpoint_epoch",
        "endpoints",
        "epoch",
        "group_id",
        "held",
        "held_bytes",
        "members",
        "metadata_hash",
        "shutdown_requested_by",
        "targets",
        "topology",
        "validated_topology_epoch",
    )

    def __init__(self, group_id: str, held: HeldBytes | None = None) -> None:
        self.group_id = group_id
        self.held = held or HeldBytes()
        self.held_bytes = 0
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.validated_topology_epoch = NO_TOPOLOGY_VALIDATED
        self.assignment_configs: Configs = {}
        self.topology: StreamsTopology | None = None
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        """Wall time of the last assignment in ms; 0 if unknown."""
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, TaskSet] = {}
        self.active_owners: dict[Task, str] = {}
        self.copies: dict[Task, set[str]] = {}
        self.checked_topics: TopicView | None = None
        self.configured: ConfiguredTopology | None = None
        self.shutdown_requested_by: str | None = None
        self.delayed_until_ms = 0
        self.endpoint_epoch = 0
        self.endpoints = EndpointPartitions()

    # --- methods that derive values from the logged state -------------------------------------------------------------

    protocol_type: Final = STREAMS_PROTOCOL
    kind: Final = "streams"

    @property
    def state(self) -> StreamsGroupState:
        """The state of the group. Computing the state checks each member, so only requests that describe groups should
        read this property."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def topics(self) -> frozenset[str]:
        """Return the names of the topics that members read. A group without members reads no topics, so that its
        offsets expire.
        """
        return frozenset(self.topology.sources) if self.members and self.topology is not None else frozenset()

    def target_of(self, member_id: str) -> TaskSet:
        return self.targets.get(member_id, NO_TARGET)

    def is_free(self, role: Role, subtopology: str, partition: int, member: StreamsMember) -> bool:
        """Whether the member may get the task in this role (active, standby or warm-up). An active task must not have
        another owner. No member of the same process may have the task, in any role. A task that this member must give
        up itself counts as free for this member.
        """
        task = (subtopology, partition)
        gives_up = member.pending_revocation
        owner = self.active_owners.get(task)
        if owner == member.member_id and partition in gives_up.active.get(subtopology, ()):
            owner = None
        if owner is not None and (role is Role.ACTIVE or self.members[owner].process_id == member.process_id):
            return False
        for holder in self.copies.get(task, ()):
            is_given_up = holder == member.member_id and any(
                partition in tasks.get(subtopology, ()) for tasks in (gives_up.standby, gives_up.warmup)
            )
            if not is_given_up and self.members[holder].process_id == member.process_id:
                return False
        return True

    # --- methods for the records of the group in the log --------------------------------------------------------------

    def epoch_record(
        self, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Configs
    ) -> StreamsGroupEpochRecord:
        config = StreamsGroupMetadataValue.LastAssignmentConfig
        value = StreamsGroupMetadataValue(
            epoch=epoch,
            metadata_hash=metadata_hash,
            validated_topology_epoch=validated_topology_epoch,
            last_assignment_configs=[config(key=key, value=configs[key]) for key in sorted(configs)],
        )
        return StreamsGroupEpochRecord(self.group_id, value)

    def next_epoch_record(self) -> StreamsGroupEpochRecord:
        """Return the record that raises the group epoch and changes no other field."""
        return self.epoch_record(
            self.epoch + 1, self.metadata_hash, self.validated_topology_epoch, self.assignment_configs
        )

    def target_epoch_record(self, epoch: int, now_ms: int) -> StreamsTargetEpochRecord:
        value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
        return StreamsTargetEpochRecord(self.group_id, value)

    def tombstones_of(self, member_id: str) -> list[StreamsGroupRecord]:
        """Return the tombstones that delete a member. Kafka's brokers expect the tombstones in this order."""
        return [
            StreamsCurrentRecord(self.group_id, member_id, None),
            StreamsTargetRecord(self.group_id, member_id, None),
            StreamsMemberRecord(self.group_id, member_id, None),
        ]

    def tombstones(self) -> list[StreamsGroupRecord]:
        """Return the tombstones that delete the whole group, in an order that Kafka's brokers accept. The group epoch
        is last: if only the first tombstones are logged, the group still exists and can be deleted again.
        """
        records: list[StreamsGroupRecord] = [
            StreamsCurrentRecord(self.group_id, member, None) for member in self.members
        ]
        records += [StreamsTargetRecord(self.group_id, member, None) for member in {**self.members, **self.targets}]
        records.append(StreamsTargetEpochRecord(self.group_id, None))
        records += [StreamsMemberRecord(self.group_id, member, None) for member in self.members]
        records += [StreamsTopologyRecord(self.group_id, None), StreamsGroupEpochRecord(self.group_id, None)]
        return records

    def replay(self, record: StreamsGroupRecord) -> None:
        """Apply a logged record, other than the tombstone of the group itself. The records of one group may be replayed
        in any order: compaction and loading skip records that later records with the same key replace, so some records
        of a batch may be missing.
        """
        if isinstance(record, StreamsCurrentRecord):
            member = self.members.get(record.member_id) or StreamsMember(record.member_id)
            if record.value is not None:
                self._put(member.with_current(record.value))
            elif record.member_id in self.members:
                self._put(member.moved_to(LEAVING_EPOCH, StreamsMemberState.STABLE, NOTHING, NOTHING))
        elif isinstance(record, StreamsTargetRecord):
            if record.value is None:
                self.targets.pop(record.member_id, None)
            else:
                self.targets[record.member_id] = record.value
        elif isinstance(record, StreamsMemberRecord):
            if record.value is not None:
                member = self.members.get(record.member_id) or StreamsMember(record.member_id)
                self._put(member.with_metadata(record.value))
            elif record.member_id in self.members:
                self._remove(record.member_id)
        elif isinstance(record, StreamsGroupEpochRecord):
            value = record.value
            assert value is not None, "the machine takes the group away"
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            self.validated_topology_epoch = value.validated_topology_epoch
            self.assignment_configs = {each.key: each.value for each in value.last_assignment_configs or ()}
        elif isinstance(record, StreamsTargetEpochRecord):
            target = record.value
            self.assignment_epoch = -1 if target is None else target.assignment_epoch
            self.assigned_at_ms = 0 if target is None else target.assignment_timestamp
        else:
            before = 0 if self.topology is None else self.topology.held_bytes
            self.topology = None if record.value is None else StreamsTopology.of(record.value)
            self._hold((0 if self.topology is None else self.topology.held_bytes) - before)
            self.checked_topics = self.configured = None

    def let_go(self) -> None:
        """Subtract the memory of this group from `held` (the broker's total for all groups), because the group is being
        deleted.
        """
        self._hold(-self.held_bytes)

    # --- private helpers of `StreamsGroup` ----------------------------------------------------------------------------

    def _put(self, member: StreamsMember) -> None:
        before = self.members.get(member.member_id)
        if before is None or before.said != member.said:
            self._hold(member.held_bytes - (0 if before is None else before.held_bytes))
        if before is not None:
            self._disown(before)
        self.members[member.member_id] = member
        for tasks in (member.assigned, member.pending_revocation):
            self.active_owners |= dict.fromkeys(_each(tasks.active), member.member_id)
            for copies in (tasks.standby, tasks.warmup):
                for task in _each(copies):
                    self.copies.setdefault(task, set()).add(member.member_id)

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._hold(-member.held_bytes)
        self._disown(member)
        self.endpoints.forget(member_id)
        if not self.members:
            self.shutdown_requested_by = None

    def _disown(self, member: StreamsMember) -> None:
        """Remove the member from the owners of the tasks that it had. An active task that already belongs to another
        member stays with that member, because the new owner's record may have been replayed before this member's
        record.
        """
        for tasks in (member.assigned, member.pending_revocation):
            self._disown_tasks(member.member_id, tasks)

    def _disown_tasks(self, member_id: str, tasks: CurrentTasks) -> None:
        for task in _each(tasks.active):
            if self.active_owners.get(task) == member_id:
                del self.active_owners[task]
        for copies in (tasks.standby, tasks.warmup):
            for task in _each(copies):
                holders = self.copies.get(task)
                if holders is not None:
                    holders.discard(member_id)
                    if not holders:
                        del self.copies[task]

    def _hold(self, more: int) -> None:
        self.held_bytes += more
        self.held.bytes += more


def _each(tasks: Mapping[str, Mapping[int, int] | frozenset[int]]) -> Iterator[Task]:
    for subtopology, partitions in tasks.items():
        for partition in partitions:
            yield subtopology, partition


def unknown_member(group: StreamsGroup, member_id: str) -> KafkaError:
    """Return the error UNKNOWN_MEMBER_ID with a message that names the member."""
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of streams group {group.group_id}."
    )
