"""Handles requests of administrators for the share partitions of a group without members: set start offsets, delete
state. Pure.

The share coordinators store the state of share partitions. A change of this state therefore has two steps: the group
first logs the intended change, and logs its completion after the share coordinators have made the change. If a
coordinator fails between the two steps, the administrator must send the request again to complete the change.
"""

from __future__ import annotations

from collections.abc import Mapping

from oncelog_broker.coordinator.effects import Effects
from oncelog_broker.coordinator.group.assignments import Target
from oncelog_broker.coordinator.group.share.share_step import ShareStep
from oncelog_broker.coordinator.group.share.state_partitions import NamedPartitions
from oncelog_protocol.errors import ErrorCode, KafkaError

Starts = Mapping[bytes, Mapping[int, int]]
"""Start offsets to set: topic id -> partition -> start offset."""


def alter(step: ShareStep, starts: Starts) -> tuple[Effects, int]:
    """Log that these share partitions are initialized again. Returns the effects and the new state epoch, which
    fences leaders that still have the old state (KAFKA-20910). Raises KafkaError NON_EMPTY_GROUP."""
    group, effects = step.group, step.effects
    _check_empty(step)
    named = {}
    for topic_id, partitions in starts.items():
        name = step.topics.name_of(topic_id)
        if name is not None:
            named[topic_id] = NamedPartitions(name, frozenset(partitions))
    epoch = group.epoch + 1
    effects.append(group.epoch_record(epoch, step.topics.hash_of(group.topics())))
    effects.append(group.target_epoch_record(epoch, 0))
    effects.append(group.state_record(group.state_partitions.with_initializing(named)))
    return effects, epoch


def delete(step: ShareStep, topic_ids: frozenset[bytes] | None) -> tuple[Effects, Target]:
    """Log that the share-partition state of these topics is being deleted; None means all topics of the group. Returns
    the effects and the share partitions to delete. If an earlier request has already begun to delete the state of a
    topic, the result contains all partitions of this topic. Raises KafkaError NON_EMPTY_GROUP."""
    group, effects = step.group, step.effects
    _check_empty(step)
    state = group.state_partitions
    wanted = state.topic_ids() if topic_ids is None else topic_ids
    partitions = {topic_id: numbers for topic_id, numbers in state.all().items() if topic_id in wanted}
    for topic_id in sorted(wanted & state.deleting.keys()):
        partitions[topic_id] = frozenset(range(step.topics.partitions_of(topic_id)))
    then = state.being_deleted(partitions)
    if then != state:
        effects.append(group.state_record(then))
    return effects, partitions


def _check_empty(step: ShareStep) -> None:
    if step.group.members:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
