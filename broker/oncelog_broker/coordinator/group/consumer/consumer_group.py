"""One group of the consumer protocol: its members, epochs, targets, and the owner of each partition. Pure.

A group and its members have three kinds of epochs. The *group epoch* rises when a property changes on which the
assignment depends. The *assignment epoch* is the group epoch for which the target assignment was computed. The *member
epoch* is the assignment epoch to which the member was reconciled.

The fields contain the logged state, which only `replay` changes. The property `state` is derived from the fields.
Invariants: each static member is in `static_members`. `owners` maps a partition to the member that has this partition
or must still give it up. `held_bytes` is the metadata bytes of all members. `held`, the broker's total for all groups,
includes these bytes until `let_go` is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from oncelog_broker.coordinator.group.assignments import NO_PARTITIONS, NO_TARGET, Current, Target
from oncelog_broker.coordinator.group.consumer.member import LEAVING_EPOCH, ConsumerMember, MemberState
from oncelog_broker.coordinator.group.consumer_records import (
    ConsumerGroupRecord,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    OldTopicsRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
)
from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_protocol.coordinator_records.consumer_groups import (
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)

CONSUMER_PROTOCOL: Final = "consumer"
FIRST_EPOCH: Final = 1
"""The group epoch and assignment epoch of a group that was never logged. The first member raises the group epoch to 2,
as in Kafka 4.3."""


class ConsumerGroupState(Enum):
    """The state of a group; the value is the name in the protocol."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment was computed for an older group epoch."""
    RECONCILING = "Reconciling"
    """At least one member has not reached its target yet."""
    STABLE = "Stable"
    DEAD = "Dead"


class ResolvedRegex(NamedTuple):
    """The topics whose names matched a regular expression at the wall time `timestamp_ms`."""

    topics: frozenset[str]
    timestamp_ms: int


class ConsumerGroup:
    """A group of the consumer protocol. `checked_topics` is the view of the cluster's topics (TopicView) whose hash the
    group last compared with its own metadata hash. `resolved_names` are the topic names against which the regular
    expressions were last matched. Both fields (`checked_topics`, `resolved_names`) are None after loading.
    """

    __slots__ = (
        "asked_to_join",
        "assigned_at_ms",
        "assignment_epoch",
        "checked_topics",
        "classic_members",
        "epoch",
        "group_id",
        "has_old_topics",
        "held",
        "held_bytes",
        "members",
        "metadata_hash",
        "owners",
        "regex_members",
        "regexes",
        "resolved_names",
        "static_members",
        "targets",
    )

    def __init__(self, group_id: str, held: HeldBytes | None = None) -> None:
        self.group_id = group_id
        self.held = held or HeldBytes()
        self.held_bytes = 0
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        """Wall time of the last assignment, in ms; 0 if it is not known."""
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """Instance id (group.instance.id) of a static member -> member id."""
        self.targets: dict[str, Target] = {}
        self.owners: dict[bytes, dict[int, str]] = {}
        """Topic id -> partition -> id of the member that has the partition or must give it up."""
        self.regexes: dict[str, ResolvedRegex] = {}
        self.regex_members: Counter[str] = Counter()
        """Regular expression -> number of members that use the expression."""
        self.classic_members = 0
        """Number of members that use the classic protocol."""
        self.has_old_topics = False
        """Whether the log has an OldTopicsRecord. Kafka before 4.1 wrote this record; when the group is deleted, it
        needs a tombstone."""
        self.asked_to_join: set[str] = set()
        """Classic members that got REBALANCE_IN_PROGRESS and have not joined again; the join timers of these members
        are running."""
        self.checked_topics: TopicView | None = None
        self.resolved_names: object | None = None

    # --- methods that derive values from the logged state -------------------------------------------------------------

    protocol_type: Final = CONSUMER_PROTOCOL
    kind: Final = "consumer"

    @property
    def state(self) -> ConsumerGroupState:
        """The state of the group. Computing the state checks each member, so only requests that describe groups should
        read this property."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        """Whether the partition has no owner: no member has it, and no member still has to give it up."""
        owners = self.owners.get(topic_id)
        return owners is None or partition not in owners

    def target_of(self, member_id: str, instance_id: str | None = None) -> Target:
        """Return the target of a member. A static member that returns with another member id gets the target of its old
        member id.
        """
        target = self.targets.get(member_id)
        if target is None and instance_id is not None:
            target = self.targets.get(self.static_members.get(instance_id, ""))
        return NO_TARGET if target is None else target

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member reads. A regular expression that has not been matched yet adds
        no topics.
        """
        resolved = self.regexes.get(member.regex) if member.regex else None
        if resolved is None or not resolved.topics:
            return member.topics
        return member.topics | resolved.topics if member.topics else resolved.topics

    def topics(self) -> frozenset[str]:
        """Return the names of all topics that members read."""
        return self.topics_with(self.members)

    def topics_with(
        self, members: Mapping[str, ConsumerMember], regexes: Mapping[str, ResolvedRegex] | None = None
    ) -> frozenset[str]:
        """Return the names of the topics that the given members read. `regexes` has the topics that each regular
        expression matches. If `regexes` is None, the topics in the group's own field `regexes` are used.
        """
        named = {member.topics for member in members.values()}
        used = {member.regex for member in members.values()}
        known = self.regexes if regexes is None else regexes
        named |= {resolved.topics for regex, resolved in known.items() if regex in used}
        return frozenset().union(*named)

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a classic member with these protocols may join: the member must share a protocol with all other
        classic members."""
        if protocol_type != CONSUMER_PROTOCOL:
            return False
        counts = Counter(
            name
            for member in self.members.values()
            if member.classic is not None
            for name in {name for name, _ in member.classic.protocols}
        )
        return any(counts[name] == self.classic_members for name in protocols)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether some partitions of a member's target still belong to another member."""
        for topic_id, partitions in self.target_of(member.member_id).items():
            had = member.assigned.get(topic_id, {})
            if any(partition not in had and not self.is_free(topic_id, partition) for partition in partitions):
                return True
        return False

    # --- methods for the records of the group in the log --------------------------------------------------------------

    def epoch_record(self, epoch: int, metadata_hash: int) -> GroupEpochRecord:
        return GroupEpochRecord(self.group_id, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))

    def target_epoch_record(self, epoch: int, now_ms: int) -> TargetEpochRecord:
        value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
        return TargetEpochRecord(self.group_id, value)

    def tombstones_of(self, member_id: str) -> list[ConsumerGroupRecord]:
        """Return the tombstones that delete a member, in the order that Kafka's brokers expect."""
        return [
            CurrentRecord(self.group_id, member_id, None),
            TargetRecord(self.group_id, member_id, None),
            MemberRecord(self.group_id, member_id, None),
        ]

    def tombstones(self) -> list[ConsumerGroupRecord]:
        """Return the tombstones that delete the entire group, in the order that Kafka's brokers expect."""
        records: list[ConsumerGroupRecord] = [CurrentRecord(self.group_id, member, None) for member in self.members]
        records += [TargetRecord(self.group_id, member, None) for member in {**self.members, **self.targets}]
        records.append(TargetEpochRecord(self.group_id, None))
        records += [MemberRecord(self.group_id, member, None) for member in self.members]
        records += [RegexRecord(self.group_id, regex, None) for regex in self.regexes]
        if self.has_old_topics:
            records.append(OldTopicsRecord(self.group_id, None))
        records.append(GroupEpochRecord(self.group_id, None))
        return records

    def replay(self, record: ConsumerGroupRecord) -> None:
        """Apply a logged record, except the tombstone of the group itself. The records of one group may be replayed in
        any order: compaction and loading skip records that later records with the same key replace, so some records of
        a batch may be missing."""
        if isinstance(record, CurrentRecord):
            member = self.members.get(record.member_id) or ConsumerMember(record.member_id)
            if record.value is not None:
                self._put(member.with_current(record.value))
            elif record.member_id in self.members:
                self._put(
                    member._replace(
                        epoch=LEAVING_EPOCH,
                        previous_epoch=LEAVING_EPOCH,
                        state=MemberState.STABLE,
                        assigned=NO_PARTITIONS,
                        pending_revocation=NO_PARTITIONS,
                    )
                )
        elif isinstance(record, TargetRecord):
            if record.value is None:
                self.targets.pop(record.member_id, None)
            else:
                self.targets[record.member_id] = record.value
        elif isinstance(record, MemberRecord):
            if record.value is not None:
                member = self.members.get(record.member_id) or ConsumerMember(record.member_id)
                self._put(member.with_metadata(record.value))
            elif record.member_id in self.members:
                self._remove(record.member_id)
        elif isinstance(record, GroupEpochRecord):
            assert record.value is not None, "the machine takes the group away"
            self.epoch, self.metadata_hash = record.value.epoch, record.value.metadata_hash
        elif isinstance(record, TargetEpochRecord):
            value = record.value
            self.assignment_epoch = -1 if value is None else value.assignment_epoch
            self.assigned_at_ms = 0 if value is None else value.assignment_timestamp
        elif isinstance(record, RegexRecord):
            if record.value is None:
                self.regexes.pop(record.regex, None)
            else:
                self.regexes[record.regex] = ResolvedRegex(frozenset(record.value.topics), record.value.timestamp)
        else:
            self.has_old_topics = record.value is not None

    def let_go(self) -> None:
        """Subtract the metadata of all members from `held` (the broker's total for all groups), because the group is
        being deleted.
        """
        self._hold(-self.held_bytes)

    # --- private helpers of `ConsumerGroup` ---------------------------------------------------------------------------

    def _put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        if before is None or before.said != member.said:
            self._forget_said(before)
            self._note_said(member)
        if before is not None:
            self._disown(before)
        self.members[member.member_id] = member
        for partitions in (member.assigned, member.pending_revocation):
            self._own(member.member_id, partitions)

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self.asked_to_join.discard(member_id)
        self._forget_said(member)
        self._disown(member)

    def _note_said(self, member: ConsumerMember) -> None:
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if member.regex:
            self.regex_members[member.regex] += 1
        self.classic_members += member.classic is not None
        self._hold(member.held_bytes)

    def _forget_said(self, member: ConsumerMember | None) -> None:
        if member is None:
            return
        # The instance id is removed only if it still belongs to this member, because another member may have taken over
        # the instance id.
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        if member.regex:
            self.regex_members[member.regex] -= 1
            if not self.regex_members[member.regex]:
                del self.regex_members[member.regex]
        self.classic_members -= member.classic is not None
        self._hold(-member.held_bytes)

    def _hold(self, more: int) -> None:
        self.held_bytes += more
        self.held.bytes += more

    def _own(self, member_id: str, partitions: Current) -> None:
        for topic_id, epochs in partitions.items():
            owners = self.owners.setdefault(topic_id, {})
            for partition in epochs:
                owners[partition] = member_id

    def _disown(self, member: ConsumerMember) -> None:
        """Remove from `owners` the partitions that still belong to this member. A partition may already belong to its
        new owner, if the new owner's record was replayed before this member's record.
        """
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions.items():
                owners = self.owners.get(topic_id)
                if owners is None:
                    continue
                for partition in epochs:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    del self.owners[topic_id]
