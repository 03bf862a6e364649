"""The state of one share partition, as an immutable value. Pure.

Writes with an outdated state epoch or leader epoch are fenced. The *state epoch* rises when a group initializes the
state again; a write with an older state epoch belongs to the previous state and is refused. The *leader epoch* is the
epoch of the newest partition leader that has read the state; an older leader may no longer write.

Invariant: the start offset does not decrease within a state epoch, unless the partition's log has lost its last
records. After such a loss the leader's write states that the records from the new start offset to the old start offset
were never delivered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from oncelog_broker.coordinator.share.state_batches import DeliveryState, StateBatch, batches_of, merged, messages_of
from oncelog_protocol.coordinator_records.share_group_state import ShareSnapshotValue, ShareUpdateValue

NOT_SET: Final = -1
"""A start offset of -1 means that the group's share.auto.offset.reset decides. An epoch of -1 means that the epoch is
not checked. A count of -1 means that the count is unknown.
"""


class ShareState(NamedTuple):
    """The state of one share partition. `complete_count`: number of acknowledged or archived records from the start
    offset on. `snapshot_offset` is the log offset of the newest snapshot, `updates` the number of changes logged since
    this snapshot."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int = NOT_SET
    batches: tuple[StateBatch, ...] = ()
    snapshot_epoch: int = 0
    created_ms: int = 0
    written_ms: int = 0
    snapshot_offset: int = 0
    updates: int = 0

    # --- methods that convert the state to and from records in the log ------------------------------------------------

    def snapshot(self, now_ms: int) -> ShareSnapshotValue:
        """Return the value of a snapshot record that stores this state."""
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.complete_count,
            create_timestamp=self.created_ms,
            write_timestamp=now_ms,
            state_batches=messages_of(ShareSnapshotValue.StateBatch, self.batches),
        )

    @classmethod
    def of_snapshot(cls, value: ShareSnapshotValue, offset: int) -> ShareState:
        """Return the state in a snapshot record that was logged at the offset `offset`."""
        return cls(
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            complete_count=value.delivery_complete_count,
            batches=merged((), batches_of(value.state_batches), value.start_offset),
            snapshot_epoch=value.snapshot_epoch,
            created_ms=value.create_timestamp,
            written_ms=value.write_timestamp,
            snapshot_offset=offset,
        )

    def updated(self, value: ShareUpdateValue) -> ShareState:
        """Return the state after a logged change has been applied."""
        start, count, batches = self.start_offset, self.complete_count, batches_of(value.state_batches)
        if value.start_offset > start or _lowers(batches, value.start_offset, start):
            start, count = value.start_offset, value.delivery_complete_count
        elif value.start_offset == start and value.delivery_complete_count != NOT_SET:
            count = value.delivery_complete_count
        return self._replace(
            leader_epoch=max(self.leader_epoch, value.leader_epoch),
            start_offset=start,
            complete_count=count,
            batches=merged(self.batches, batches, start),
            updates=self.updates + 1,
        )


def _lowers(batches: Iterable[StateBatch], start: int, before: int) -> bool:
    """Whether the leader's write states that all records from `start` up to the old start offset `before` were never
    delivered. If these records were never delivered, the start offset may decrease. A record that a member has released
    was delivered before, so it does not count as never delivered.
    """
    return start >= 0 and any(
        batch.first == start and batch.last >= before - 1 and batch[2:] == (DeliveryState.AVAILABLE, 0)
        for batch in batches
    )
