"""One member of a group of the consumer protocol, as an immutable value. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from oncelog_broker.coordinator.group.assignments import (
    NO_PARTITIONS,
    Current,
    current_of,
    current_topics,
)
from oncelog_broker.coordinator.group.consumer_records import CurrentRecord, MemberRecord
from oncelog_broker.coordinator.group.held_bytes import PROTOCOL_OVERHEAD, TOPIC_OVERHEAD, bytes_of
from oncelog_protocol.coordinator_records.consumer_groups import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)

JOINING_EPOCH: Final = 0
"""Epoch of a heartbeat with which a member joins the group, or joins again after the member was fenced."""
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2
"""Epoch of a heartbeat with which a static member leaves temporarily; the member's partitions stay reserved until its
session ends."""


class MemberState(IntEnum):
    """The progress of a member towards its target assignment. The numbers are stored in the log.

    STABLE: the member has the target assignment of its epoch. UNREVOKED: the member still has partitions that it must
    give up. UNRELEASED: some partitions of the target still belong to other members. UNKNOWN: the log has a state that
    only a later release knows.
    """

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


class ClassicProtocols(NamedTuple):
    """The additional fields of a member of the classic protocol: its session timeout, and its protocols with their
    metadata."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def name(self) -> str:
        """The name of the protocol in responses to the member."""
        return self.protocols[0][0]


class ConsumerMember(NamedTuple):
    """A member of a group. `topics` and `regex` are the subscription; a `regex` of "" means no regular expression.
    `assigned` are the partitions that the member may read. `pending_revocation` are the partitions that the member must
    give up and has not given up yet. Each partition has the epoch in which it was assigned.

    `previous_epoch`: the epoch before the present epoch; a member whose last response was lost may still send the
    previous epoch.
    """

    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    # --- fields that the member reports about itself, which the property `said` returns together
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    classic: ClassicProtocols | None = None
    """Fields that only a member of the classic protocol has; None if the member uses the consumer protocol."""
    assigned: Current = NO_PARTITIONS
    pending_revocation: Current = NO_PARTITIONS

    def moved_to(self, epoch: int, state: MemberState, assigned: Current, pending: Current) -> ConsumerMember:
        """Return the member after a reconciliation step (giving up or getting partitions); `epoch` may be the present
        epoch.
        """
        return self._replace(
            epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, pending_revocation=pending
        )

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    @property
    def said(self) -> tuple[object, ...]:
        """All fields that the member reports about itself, for comparison."""
        return self[4:13]

    @property
    def is_revoking(self) -> bool:
        """Whether the member still has partitions that it must give up."""
        return self.state is MemberState.UNREVOKED

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of memory of the member's metadata."""
        protocols = () if self.classic is None else self.classic.protocols
        texts = (self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host, self.regex)
        said = sum(len(text.encode()) for text in texts if text is not None)
        topics = sum(TOPIC_OVERHEAD + len(name.encode()) for name in self.topics)
        return PROTOCOL_OVERHEAD + said + topics + bytes_of(protocols)

    # --- methods that convert the member to and from records in the log -----------------------------------------------

    def metadata_record(self, group_id: str) -> MemberRecord:
        """Return the record with the fields that the member reports about itself."""
        value = ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=None if self.classic is None else _classic_value(self.classic),
        )
        return MemberRecord(group_id, self.member_id, value)

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """Return the member with the reported fields in a MemberRecord."""
        said = value.classic_member_metadata
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            assignor=value.server_assignor,
            classic=None
            if said is None
            else ClassicProtocols(
                said.session_timeout_ms,
                tuple((protocol.name, protocol.metadata) for protocol in said.supported_protocols),
            ),
        )

    def current_record(self, group_id: str) -> CurrentRecord:
        """Return the record of the member's current assignment."""
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=current_topics(self.assigned),
            partitions_pending_revocation=current_topics(self.pending_revocation),
        )
        return CurrentRecord(group_id, self.member_id, value)

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """Return the member with the current assignment in a CurrentRecord."""
        try:
            state = MemberState(value.state)
        except ValueError:
            state = MemberState.UNKNOWN
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=state,
            assigned=current_of(value.assigned_partitions, value.member_epoch),
            pending_revocation=current_of(value.partitions_pending_revocation, value.member_epoch),
        )


def _classic_value(classic: ClassicProtocols) -> ConsumerGroupMemberMetadataValue.ClassicMemberMetadata:
    value = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
    return value(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            value.ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
        ],
    )
