"""One member of a streams group, as an immutable value. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from oncelog_broker.coordinator.group.held_bytes import PROTOCOL_OVERHEAD, TOPIC_OVERHEAD
from oncelog_broker.coordinator.group.streams_records import StreamsCurrentRecord, StreamsMemberRecord
from oncelog_broker.coordinator.group.streams_tasks import (
    NOTHING,
    CurrentTasks,
    EpochTasks,
    Tasks,
    epoch_tasks_of,
    listed,
    tasks_of,
)
from oncelog_protocol.coordinator_records.streams_groups import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
)

JOINING_EPOCH: Final = 0
"""A heartbeat with this epoch joins the group, or joins the group again after the member was fenced."""
LEAVING_EPOCH: Final = -1

Endpoint = StreamsGroupMemberMetadataValue.Endpoint
KeyValue = StreamsGroupMemberMetadataValue.KeyValue
CurrentIds = StreamsGroupCurrentMemberAssignmentValue.TaskIds


class StreamsMemberState(IntEnum):
    """The progress of a member towards its target assignment. The numbers are stored in the log, and differ from the
    numbers of the same states in consumer groups.

    STABLE: the member has the target assignment of its epoch. UNREVOKED: the member must still give up tasks.
    UNRELEASED: some tasks of the target still belong to other members. UNKNOWN: the state was written by a later
    release.
    """

    STABLE = 1
    UNREVOKED = 2
    UNRELEASED = 3
    UNKNOWN = 127


class StreamsMember(NamedTuple):
    """A member. `assigned` has the current tasks, and `pending_revocation` the tasks that the member must give up.

    A member whose last response was lost may still send `previous_epoch`. Members with the same `process_id` share a
    state directory, so no two members of one process may have the same task. `endpoint` is the host and port at which
    the member serves interactive queries. `tags` has sorted pairs of key and value.
    """

    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: StreamsMemberState = StreamsMemberState.STABLE
    # --- fields that the member reports about itself, which the property `said` returns together
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    tags: tuple[tuple[str, str], ...] = ()
    # --- the current assignment of the member -------------------------------------------------------------------------
    assigned: CurrentTasks = NOTHING
    pending_revocation: CurrentTasks = NOTHING

    def moved_to(
        self, epoch: int, state: StreamsMemberState, assigned: CurrentTasks, pending: CurrentTasks
    ) -> StreamsMember:
        """Return the member after a step of its reconciliation (giving up or getting tasks); the epoch may stay the
        same.
        """
        return self._replace(
            epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending_revocation=pending
        )

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is StreamsMemberState.STABLE and self.epoch == assignment_epoch

    @property
    def said(self) -> tuple[object, ...]:
        """All fields that the member reports about itself, for comparison."""
        return self[4:13]

    @property
    def is_revoking(self) -> bool:
        """Whether the member must still give up tasks."""
        return self.state is StreamsMemberState.UNREVOKED

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of memory of the fields that the member reports about itself."""
        host = None if self.endpoint is None else self.endpoint[0]
        texts = (self.member_id, self.rack_id, self.client_id, self.client_host, self.process_id, host)
        said = sum(len(text.encode()) for text in texts if text is not None)
        tags = sum(TOPIC_OVERHEAD + len(key.encode()) + len(value.encode()) for key, value in self.tags)
        return PROTOCOL_OVERHEAD + said + tags

    # --- methods that convert the member to and from records in the log -----------------------------------------------

    def metadata_record(self, group_id: str) -> StreamsMemberRecord:
        """Return the record with the fields that the member reports about itself."""
        value = StreamsGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=None if self.endpoint is None else Endpoint(host=self.endpoint[0], port=self.endpoint[1]),
            client_tags=[KeyValue(key=key, value=tag) for key, tag in self.tags],
        )
        return StreamsMemberRecord(group_id, self.member_id, value)

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        """Return the member with the reported fields of a metadata record."""
        at = value.user_endpoint
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            client_id=value.client_id,
            client_host=value.client_host,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if at is None else (at.host, at.port),
            tags=tuple(sorted((tag.key, tag.value) for tag in value.client_tags)),
        )

    def current_record(self, group_id: str) -> StreamsCurrentRecord:
        """Return the record of the member's current assignment."""
        assigned, pending = self.assigned, self.pending_revocation
        value = StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            active_tasks=_with_epochs(assigned.active),
            standby_tasks=_ids(assigned.standby),
            warmup_tasks=_ids(assigned.warmup),
            active_tasks_pending_revocation=_with_epochs(pending.active),
            standby_tasks_pending_revocation=_ids(pending.standby),
            warmup_tasks_pending_revocation=_ids(pending.warmup),
        )
        return StreamsCurrentRecord(group_id, self.member_id, value)

    def with_current(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
        """Return the member with the current assignment of an assignment record."""
        try:
            state = StreamsMemberState(value.state)
        except ValueError:
            state = StreamsMemberState.UNKNOWN
        epoch = value.member_epoch
        return self._replace(
            epoch=epoch,
            previous_epoch=value.previous_member_epoch,
            state=state,
            assigned=CurrentTasks(
                epoch_tasks_of(value.active_tasks, epoch),
                tasks_of(value.standby_tasks),
                tasks_of(value.warmup_tasks),
            ),
            pending_revocation=CurrentTasks(
                epoch_tasks_of(value.active_tasks_pending_revocation, epoch),
                tasks_of(value.standby_tasks_pending_revocation),
                tasks_of(value.warmup_tasks_pending_revocation),
            ),
        )


def _ids(tasks: Tasks) -> list[CurrentIds]:
    return listed(tasks, lambda subtopology, numbers: CurrentIds(subtopology_id=subtopology, partitions=numbers))


def _with_epochs(tasks: EpochTasks) -> list[CurrentIds]:
    def ids(subtopology: str, numbers: list[int]) -> CurrentIds:
        epochs = [tasks[subtopology][number] for number in numbers]
        return CurrentIds(subtopology_id=subtopology, partitions=numbers, assignment_epochs=epochs)

    return listed(tasks, ids)
