"""One member of a share group, as an immutable value. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog_broker.coordinator.group.assignments import NO_TARGET, Target, target_of
from oncelog_broker.coordinator.group.held_bytes import PROTOCOL_OVERHEAD, TOPIC_OVERHEAD
from oncelog_broker.coordinator.group.share_records import ShareCurrentRecord, ShareMemberRecord
from oncelog_protocol.coordinator_records.share_groups import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
)

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STABLE: Final = 0
"""The member state in responses. A share group member has only this state, because it gets its target immediately."""

CurrentTopic = ShareGroupCurrentMemberAssignmentValue.TopicPartitions


class ShareMember(NamedTuple):
    """A member of a share group. `topics` are the names of the topics that the member reads, `assigned` are the
    member's share partitions.

    `previous_epoch`: the epoch before the present epoch; a member whose last response was lost may still send the
    previous epoch.
    """

    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    # --- fields that the member reports about itself, which the property `said` returns together
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: Target = NO_TARGET

    @property
    def said(self) -> tuple[object, ...]:
        """All fields that the member reports about itself, for comparison."""
        return self[3:7]

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of memory of the fields that the member reports."""
        texts = (self.member_id, self.rack_id, self.client_id, self.client_host)
        said = sum(len(text.encode()) for text in texts if text is not None)
        return PROTOCOL_OVERHEAD + said + sum(TOPIC_OVERHEAD + len(name.encode()) for name in self.topics)

    # --- methods that convert the member to and from records in the log -----------------------------------------------

    def metadata_record(self, group_id: str) -> ShareMemberRecord:
        """Return the metadata record that stores the member's reported fields."""
        value = ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
        )
        return ShareMemberRecord(group_id, self.member_id, value)

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        """Return the member with the metadata of a record."""
        return self._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
        )

    def current_record(self, group_id: str) -> ShareCurrentRecord:
        """Return the record of the member's current assignment."""
        value = ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=STABLE,
            assigned_partitions=[
                CurrentTopic(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in self.assigned.items()
            ],
        )
        return ShareCurrentRecord(group_id, self.member_id, value)

    def with_current(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
        """Return the member with the current assignment of a record."""
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=target_of(value.assigned_partitions),
        )
