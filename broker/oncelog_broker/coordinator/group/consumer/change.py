"""The changes that a heartbeat or a JoinGroup causes in the member and the group. Pure.

The changes are logged as one batch of records, in this order: the member's subscription, the group epoch, the target
assignment, the member's current assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oncelog_broker.coordinator.group.assignments import Owned, Target
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from oncelog_broker.coordinator.group.consumer.member import ConsumerMember
from oncelog_broker.coordinator.group.consumer.reconcile import Aim, reconcile
from oncelog_broker.coordinator.group.consumer.step import ConsumerStep
from oncelog_broker.coordinator.group.consumer_records import OldTopicsRecord, TargetRecord
from oncelog_broker.coordinator.group.topic_view import TopicView


class MemberChange:
    """The changes that one heartbeat or JoinGroup causes in a group. `before` is the member at the start of the step,
    `member` the member with the changes so far. `replaced` is the id of the static member that the member replaces, or
    None. `group_epoch` is the group epoch after the changes so far."""

    __slots__ = ("before", "group_epoch", "member", "replaced", "step")

    def __init__(
        self, step: ConsumerStep, before: ConsumerMember, member: ConsumerMember, replaced: str | None
    ) -> None:
        self.step = step
        self.before = before
        self.member = member
        self.replaced = replaced
        self.group_epoch = step.group.epoch

    def members(self) -> dict[str, ConsumerMember]:
        """All members of the group as they are after this change, by member id."""
        members = {**self.step.group.members, self.member.member_id: self.member}
        if self.replaced is not None:
            del members[self.replaced]
        return members

    def log_said(self) -> bool:
        """Log the member's subscription if the subscription has changed. Returns whether the explicitly named topics
        have changed."""
        group = self.step.group
        if self.member.said == self.before.said and (self.replaced or self.member.member_id in group.members):
            return False
        self.step.effects.append(self.member.metadata_record(group.group_id))
        return self.member.topics != self.before.topics

    def raise_group_epoch(self, *, is_needed: bool) -> None:
        """Raise the group epoch if the subscriptions (`is_needed`), the subscribed topics in the cluster, or the
        group's assignor have changed."""
        step, group = self.step, self.step.group
        if self.member.assignor != self.before.assignor and not is_needed:
            assignors = step.config.consumer_assignors
            wanted = preferred_assignor(group.members.values(), assignors)
            is_needed = wanted != preferred_assignor(self.members().values(), assignors)
        if not is_needed and group.checked_topics is step.topics:
            return
        metadata_hash = step.topics.hash_of(group.topics_with(self.members()))
        if is_needed or metadata_hash != group.metadata_hash:
            self.group_epoch += 1
            step.effects.append(group.epoch_record(self.group_epoch, metadata_hash))
        if group.has_old_topics:
            step.effects.append(OldTopicsRecord(group.group_id, None))
        step.effects.changes.append(lambda: mark_checked(step.logged_group(), step.topics))

    def reconcile(self, epoch: int, target: Target, owned: Owned | None, *, subscription_changed: bool) -> None:
        """Move the member one step towards its target assignment; `epoch` is the assignment epoch, for which the target
        was computed.
        """
        step, group, before = self.step, self.step.group, self.member
        if not subscription_changed and before.is_reconciled_to(epoch):
            return
        topics = step.topics.ids_of(group.topics_of(before))
        self.member = reconcile(before, Aim(epoch, target, topics, group.is_free, owned, subscription_changed))
        if self.member != before:
            step.effects.append(self.member.current_record(group.group_id))
            step.follow_reconciliation(self.member)


def mark_checked(group: ConsumerGroup | None, topics: TopicView) -> None:
    """Note, only in memory, that the group's metadata hash was computed from the topics in `topics`."""
    if group is not None:
        group.checked_topics = topics


def preferred_assignor(members: Iterable[ConsumerMember], configured: tuple[str, ...]) -> str:
    """Return the assignor that most members request. Among equally often requested assignors, or if no member requests
    one, the first configured assignor wins.
    """
    votes = Counter(member.assignor for member in members if member.assignor in configured)
    return max(configured, key=lambda name: votes[name])


def replace_static(step: ConsumerStep, old: ConsumerMember, member_id: str) -> ConsumerMember:
    """Let a static member replace its previous member with the same instance id. The new member id gets the target and
    the current assignment, starts at epoch 0, and moves to the target step by step again.
    """
    group = step.group
    member = old._replace(member_id=member_id, epoch=0, previous_epoch=0)
    step.effects.records += group.tombstones_of(old.member_id)
    step.cancel_timers(old.member_id)
    step.effects.append(member.metadata_record(group.group_id))
    step.effects.append(TargetRecord(group.group_id, member_id, group.target_of(old.member_id)))
    step.effects.append(member.current_record(group.group_id))
    return member
