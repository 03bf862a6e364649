"""The state machine of one partition of `__consumer_offsets`: all groups and committed offsets of the partition. Pure.

A group of a consumer that assigns partitions manually has only offsets and no `ClassicGroup` object. A method that
handles a request raises KafkaError to refuse the request; otherwise the returned effects contain the response.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final, cast

from oncelog_broker.coordinator.effects import Effects, Encoded, TimerKey, Waiter
from oncelog_broker.coordinator.group import joining, membership, records, transactional_offsets
from oncelog_broker.coordinator.group.classic_group import ClassicGroup
from oncelog_broker.coordinator.group.commits import Commit, CommitTopic, Exists, check_no_members, expire_timestamp
from oncelog_broker.coordinator.group.config import ConsumerGroupSettings, GroupConfig
from oncelog_broker.coordinator.group.consumer import classic_members, heartbeat, leaving
from oncelog_broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from oncelog_broker.coordinator.group.consumer.epochs import (
    FIRST_MEMBER_EPOCH_VERSION,
    CheckPartition,
    check_commit,
    check_fetch,
)
from oncelog_broker.coordinator.group.consumer.heartbeat import Heartbeat
from oncelog_broker.coordinator.group.consumer.regexes import Resolved, take_resolved
from oncelog_broker.coordinator.group.consumer.step import ConsumerStep
from oncelog_broker.coordinator.group.consumer.target import Assigned, take_assigned
from oncelog_broker.coordinator.group.consumer.upgrade import upgrade
from oncelog_broker.coordinator.group.consumer_records import ConsumerGroupRecord, GroupEpochRecord
from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.offset_removal import delete_offsets, expired_offsets
from oncelog_broker.coordinator.group.offsets import CommittedOffsets
from oncelog_broker.coordinator.group.other_groups import OtherGroups
from oncelog_broker.coordinator.group.records import (
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    group_record,
    offset_record,
)
from oncelog_broker.coordinator.group.share.share_group import ShareGroup
from oncelog_broker.coordinator.group.share.share_groups import ShareGroups, find_share_group
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.group.step import GroupTimer, Step, TimerKind
from oncelog_broker.coordinator.group.streams import streams_epochs
from oncelog_broker.coordinator.group.streams.streams_group import StreamsGroup
from oncelog_broker.coordinator.group.streams.streams_groups import StreamsGroups, find_streams_group
from oncelog_broker.coordinator.group.topic_view import TopicView
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from oncelog_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest
from oncelog_protocol.messages.sync_group import SyncGroupRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

MAX_EXPIRED_PER_STEP: Final = 500
"""Maximum number of offset tombstones in one step (call of the state machine); such a step takes a few milliseconds.
"""

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
NO_TOPICS: Final = TopicView(ClusterImage(""))


class GroupMachine:
    """The state machine of the groups of one partition; `shard.Machine` documents the methods that the coordinator
    runtime calls. `now_ms` returns wall time; `new_id` creates the unique part of a member id; `held` (HeldBytes)
    counts the metadata bytes of all groups of the broker; `topics()` returns the present topics of the cluster, and
    `overrides_of(group)` the settings of a single group."""

    def __init__(
        self,
        config: GroupConfig,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        held: HeldBytes | None = None,
        topics: Callable[[], TopicView] = lambda: NO_TOPICS,
        overrides_of: Callable[[str], Mapping[str, str]] = lambda group_id: {},
    ) -> None:
        self._held = held or HeldBytes()
        self.topics = topics
        self._overrides_of = overrides_of
        self._config = config
        self._now_ms = now_ms
        self._new_id = new_id
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()
        self.share = ShareGroups(
            self.groups, self._remove, self.offsets.has, config, now_ms, self._held, topics, overrides_of
        )
        """Handles the share groups among `groups`."""
        self.streams = StreamsGroups(self.groups, self._remove, config, now_ms, self._held, topics, overrides_of)
        """Handles the streams groups among `groups`."""
        self._others: dict[type, OtherGroups] = {ShareGroup: self.share, StreamsGroup: self.streams}

    # --- methods that the coordinator runtime calls

    records_replace_older: Final = True
    """True, because a record replaces all older records with the same key."""

    def encode(self, record: CoordinatorRecord) -> Encoded:
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        return records.decode(key, value)

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record.key, record.value, offset, producer_id)
        elif isinstance(record, GroupRecord):
            self._replay_classic(record)
        else:
            for others in self._others.values():
                if others.has(record):
                    others.replay(record)
                    return
            self._replay_consumer(cast(ConsumerGroupRecord, record))

    def _replay_classic(self, record: GroupRecord) -> None:
        """Replay a record of the classic protocol. A tombstone of a group that is no longer of this protocol has no
        effect.
        """
        if record.value is not None:
            self._made(record.key.group).replay(record.value)
        elif isinstance(self.groups.get(record.key.group), ClassicGroup):
            self._remove(record.key.group)

    def _replay_consumer(self, record: ConsumerGroupRecord) -> None:
        """Replay a record of the consumer protocol. A tombstone of a group that is no longer of the consumer protocol
        has no effect."""
        group = self.groups.get(record.group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            self._remove(record.group_id)
            group = self.groups[record.group_id] = ConsumerGroup(record.group_id, self._held)
        if isinstance(record, GroupEpochRecord) and record.value is None:
            self._remove(record.group_id)
        else:
            group.replay(record)

    def _remove(self, group_id: str) -> None:
        """Remove a group that was deleted or converted to another protocol."""
        gone = self.groups.pop(group_id, None)
        if gone is not None:
            gone.let_go()
        if isinstance(gone, ClassicGroup):
            gone.transition_to(GroupState.DEAD)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.replay_end_transaction(producer_id, committed)

    def on_loaded(self) -> Iterator[Effects]:
        for group in list(self.groups.values()):
            if self.groups.get(group.group_id) is group:
                effects = Effects()
                if isinstance(group, ConsumerGroup):
                    self._consumer_step(group, effects).start_timers()
                elif isinstance(group, ClassicGroup):
                    self._resume(group, effects)
                else:
                    self._others[type(group)].on_loaded(group, effects)
                yield effects

    def on_timer(self, timer: TimerKey) -> Effects:
        effects = Effects()
        assert isinstance(timer, GroupTimer)
        group = self.groups.get(timer.group_id)
        if group is None:
            return effects
        if isinstance(group, ConsumerGroup):
            leaving.on_timer(self._consumer_step(group, effects), timer)
            return effects
        if not isinstance(group, ClassicGroup):
            self._others[type(group)].on_timer(group, timer, effects)
            return effects
        step = self._step(group, effects)
        if timer.kind == TimerKind.SESSION:
            membership.on_session_timer(step, timer.member_id)
        elif timer.member_id:
            # Ignore this timer of the consumer protocol, because the group has become a classic group since the timer
            # was set.
            return effects
        elif timer.kind == TimerKind.JOIN:
            joining.on_join_timer(step)
        elif timer.kind == TimerKind.SYNC:
            membership.on_sync_timer(step)
        elif timer.kind == TimerKind.REJOIN and group.state is GroupState.STABLE:
            joining.rebalance(step)
        self._forget_if_void(group)
        return effects

    def on_job(self, key: str, result: object) -> Effects:
        """Handle the result of a background job: a computed assignment, or the topics that regular expressions
        match."""
        effects = Effects()
        group = self.groups.get(key)
        if group is None or isinstance(group, ClassicGroup):
            return effects
        if not isinstance(group, ConsumerGroup):
            return self._others[type(group)].on_job(group, result)
        if isinstance(result, Assigned):
            return take_assigned(group, result, self._now_ms())
        if isinstance(result, Resolved):
            take_resolved(self._consumer_step(group, effects), result)
        return effects

    def key_of(self, timer: TimerKey) -> str:
        assert isinstance(timer, GroupTimer)
        return timer.group_id

    def on_failed(self, key: str) -> Effects:
        """Reset the group to its last logged state. A rebalance in progress is dropped; the waiting members have
        received an error and join again."""
        effects = Effects()
        failed = self.groups.get(key)
        if failed is None:
            return effects
        # All records of a conversion to another protocol are in one batch. If this batch was not appended, the group
        # still has its old protocol, so nothing has to be restored.
        if isinstance(failed, ConsumerGroup):
            failed.checked_topics = failed.resolved_names = None
            self._consumer_step(failed, effects).start_timers()
            return effects
        if not isinstance(failed, ClassicGroup):
            self._others[type(failed)].on_failed(failed, effects)
            return effects
        del self.groups[key]
        failed.let_go()
        self._step(failed, effects).cancel_timers()
        if failed.last_logged is not None:
            group = self._made(key)
            group.replay(failed.last_logged)
            self._resume(group, effects)
        return effects

    def _resume(self, group: ClassicGroup, effects: Effects) -> None:
        """Go on with a group as it was logged."""
        self._step(group, effects).start_sessions()
        if group.must_join_again:
            effects.start_timer(GroupTimer(TimerKind.REJOIN, group.group_id), 0.0)

    def on_unloaded(self, error: KafkaError) -> Effects:
        effects = Effects()
        for group in self.groups.values():
            group.let_go()
            if not isinstance(group, ClassicGroup):
                continue
            for waiter in (*group.joining.values(), *group.syncing.values()):
                effects.reply(waiter, error)
        return effects

    # --- methods that handle requests of members ----------------------------------------------------------------------

    def join(self, asked: joining.Join) -> Effects:
        request, config = asked.request, self._config
        _check_group_id(request.group_id)
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"{request.session_timeout_ms} ms: group.min.session.timeout.ms={config.min_session_timeout_ms}, "
                f"group.max.session.timeout.ms={config.max_session_timeout_ms}",
            )
        effects = Effects()
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and group.members:
            classic_members.join(self._consumer_step(group, effects), asked)
            return effects
        if isinstance(group, ShareGroup) or (isinstance(group, StreamsGroup) and group.members):
            what = f"Group {request.group_id} is a {group.kind} group."
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, what)
        if isinstance(group, ConsumerGroup | StreamsGroup):  # a classic group replaces this empty group
            effects.records += group.tombstones()
            effects.afterwards = partial(self.join, asked)
            return effects
        if group is None:
            if request.member_id != "":
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            group = self._made(request.group_id)
        try:
            joining.join(self._step(group, effects), asked)
        finally:
            self._forget_if_void(group)
        return effects

    def consumer_heartbeat(self, asked: Heartbeat) -> Effects:
        """Handle a ConsumerGroupHeartbeat. Raises KafkaError GROUP_ID_NOT_FOUND, and the errors of `heartbeat` and
        `leaving`."""
        effects = Effects()
        request = asked.request
        group = self._consumer_group(request.group_id, effects, joins=asked.joins)
        step = self._consumer_step(group, effects)
        if not asked.leaves:
            heartbeat.heartbeat(step, asked)
            return effects
        leaving.leave(step, request)
        effects.reply(
            asked.waiter,
            ConsumerGroupHeartbeatResponse(
                error_code=ErrorCode.NONE, member_id=request.member_id, member_epoch=request.member_epoch
            ),
        )
        return effects

    def _consumer_group(self, group_id: str, effects: Effects, *, joins: bool) -> ConsumerGroup:
        """Return the consumer group that a heartbeat names. If the member `joins`, the result is the group in the state
        after the records in `effects` are replayed.

        A classic group without members is replaced by a group of the consumer protocol, and the offsets stay. A classic
        group with members is converted to a group of the consumer protocol. Raises KafkaError GROUP_ID_NOT_FOUND.
        """
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not joins or isinstance(group, ShareGroup | StreamsGroup):
            what = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        if group is not None and group.members:
            return upgrade(group, self._config, self.topics(), effects)
        if group is not None and group.is_logged:
            effects.append(group_record(group_id, None))
        return ConsumerGroup(group_id, self._held)

    def sync(self, request: SyncGroupRequest, waiter: Waiter) -> Effects:
        effects = Effects()
        consumers = self._consumers(request.group_id)
        if consumers is not None:
            classic_members.sync(self._consumer_step(consumers, effects), request, waiter)
            return effects
        membership.sync(self._step(self._joined(request.group_id), effects), request, waiter)
        return effects

    def heartbeat(self, request: HeartbeatRequest, waiter: Waiter) -> Effects:
        effects = Effects()
        consumers = self._consumers(request.group_id)
        if consumers is not None:
            classic_members.heartbeat(self._consumer_step(consumers, effects), request, waiter)
            return effects
        code = membership.heartbeat(self._step(self._joined(request.group_id), effects), request)
        effects.reply(waiter, HeartbeatResponse(error_code=code))
        return effects

    def leave(self, group_id: str, members: Collection[LeaveGroupRequest.MemberIdentity], waiter: Waiter) -> Effects:
        """Handle a LeaveGroup. The response has one result per member; a request before v3 has one member, whose error
        is the top-level error."""
        effects = Effects()
        consumers = self._consumers(group_id)
        if consumers is not None:
            responses = classic_members.leave(self._consumer_step(consumers, effects), members)
        else:
            group = self._joined(group_id)
            responses = membership.leave(self._step(group, effects), members)
            self._forget_if_void(group)
        effects.reply(waiter, LeaveGroupResponse(error_code=ErrorCode.NONE, members=responses))
        return effects

    # --- methods that find and delete groups --------------------------------------------------------------------------

    def known(self) -> Iterable[Group]:
        """Return every group, including the groups that only have committed offsets."""
        yield from self.groups.values()
        for group_id in self.offsets.groups():
            if group_id not in self.groups:
                yield ClassicGroup(group_id)

    def ids(self) -> list[str]:
        """Return the ids of all groups, including groups that only have committed offsets. The result is a copy."""
        return [*self.groups, *(group_id for group_id in self.offsets.groups() if group_id not in self.groups)]

    def find(self, group_id: str) -> Group:
        """Return the group with this id, which the caller must not change. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is not None:
            return group
        if self.offsets.has(group_id):
            return ClassicGroup(group_id)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")

    def find_classic(self, group_id: str) -> ClassicGroup:
        """Return the classic group with this id, which the caller must not change; groups that have committed offsets
        and no protocol are included. Raises KafkaError GROUP_ID_NOT_FOUND.
        """
        group = self.find(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return group

    def find_consumer(self, group_id: str) -> ConsumerGroup:
        """Return the consumer group with this id, which the caller must not change. Raises KafkaError
        GROUP_ID_NOT_FOUND.
        """
        group = self.find(group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return group

    def find_share(self, group_id: str) -> ShareGroup:
        """Return the share group with this id, which the caller must not change. Raises KafkaError
        GROUP_ID_NOT_FOUND.
        """
        return find_share_group(self.groups.get(group_id), group_id)

    def find_streams(self, group_id: str) -> StreamsGroup:
        """Return the streams group with this id, which the caller must not change. Raises KafkaError
        GROUP_ID_NOT_FOUND.
        """
        return find_streams_group(self.groups.get(group_id), group_id)

    def delete(self, group_id: str) -> Effects:
        """Delete a group without members, with its offsets. Pending offsets of open transactions are deleted, too, so
        that the end of a transaction does not create the group again. The caller adds the reply to the returned
        effects."""
        group = self.find(group_id)
        is_empty = group.state is GroupState.EMPTY if isinstance(group, ClassicGroup) else not group.members
        if not is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        effects = Effects()
        effects.may_be_divided = True
        for topic, partition in self.offsets.partitions_of(group_id):
            effects.append(offset_record(group_id, topic, partition, None))
        self._bury(group, effects)
        return effects

    def _bury(self, group: Group, effects: Effects) -> None:
        """Log the removal of a group without members."""
        if not isinstance(group, ClassicGroup):
            effects.records += group.tombstones()
        elif group.is_logged:
            effects.append(group_record(group.group_id, None))
        else:
            effects.changes.append(lambda: self.groups.pop(group.group_id, None))

    # --- methods that commit, check or delete offsets -----------------------------------------------------------------

    def commit(
        self,
        request: OffsetCommitRequest,
        exists: Exists,
        waiter: Waiter,
        refused: Collection[CommitTopic] = (),
        version: int = 0,
    ) -> Effects:
        """Handle an OffsetCommit; a partition that does not exist gets an error. `refused` has the results of topics
        that the caller has refused; they are added to the response.
        """
        effects = Effects()
        effects.too_large = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        check = self._check_commit(request, effects, version)
        if check is not None:
            for topic in request.topics:
                for partition in topic.partitions:
                    check(topic.name, partition.partition_index)
        now_ms = self._now_ms()
        commit = Commit(
            request.group_id,
            now_ms,
            exists,
            self._config.offset_metadata_max_bytes,
            expire_timestamp(now_ms, request.retention_time_ms),
        )
        topics = [commit.add_topic(effects, topic) for topic in request.topics]
        effects.reply(waiter, OffsetCommitResponse(topics=[*refused, *topics]))
        return effects

    def _check_commit(self, request: OffsetCommitRequest, effects: Effects, version: int) -> CheckPartition | None:
        """Check that the member that the request names exists, that the generation in the request is the present
        generation, and that the member may commit offsets. A request without member and generation is allowed only if
        the group is empty. The returned function checks each partition of the commit. Raises KafkaError
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION,
        REBALANCE_IN_PROGRESS."""
        generation = request.generation_id_or_member_epoch
        group = self.groups.get(request.group_id)
        if isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is a share group.")
        if group is None:
            has_offsets = self.offsets.has(request.group_id)
            if generation >= 0 and not has_offsets and version >= FIRST_MEMBER_EPOCH_VERSION:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
            check_no_members(generation, has_offsets=has_offsets)
            return None
        if isinstance(group, ConsumerGroup | StreamsGroup):
            if generation < 0 and not group.members:
                return None
            if isinstance(group, StreamsGroup):
                return streams_epochs.check_commit(group, request.member_id, generation, version=version)
            return check_commit(group, request.member_id, generation, self.topics(), version=version)
        if generation < 0 and group.state is GroupState.EMPTY:
            return None
        member = membership.check_generation(group, request.member_id, request.group_instance_id, generation)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._step(group, effects).start_session(member)
        return None

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Check that a member of a group of the consumer or streams protocol may fetch offsets in this epoch. Groups of
        other protocols, and unknown groups, are not checked. Raises KafkaError UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH,
        ILLEGAL_GENERATION."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            check_fetch(group, member_id, epoch)
        elif isinstance(group, StreamsGroup):
            streams_epochs.check_fetch(group, member_id, epoch)

    def commit_in_transaction(self, request: TxnOffsetCommitRequest, exists: Exists, waiter: Waiter) -> Effects:
        """Handle a TxnOffsetCommit. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
        group_id = request.group_id
        group = self.groups.get(group_id)
        if isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is a share group.")
        if isinstance(group, ConsumerGroup | StreamsGroup):
            transactional_offsets.check_epoch(group, request, self.topics())
        else:
            transactional_offsets.check_member(group, request, has_offsets=self.offsets.has(group_id))
        commit = Commit(group_id, self._now_ms(), exists, self._config.offset_metadata_max_bytes)
        effects, response = transactional_offsets.commit_in_transaction(request, commit)
        effects.reply(waiter, response)
        return effects

    def delete_offsets(self, request: OffsetDeleteRequest, exists: Exists, waiter: Waiter) -> Effects:
        """Handle an OffsetDelete, which deletes offsets of topics that the group does not read."""
        _check_group_id(request.group_id)
        effects, response = delete_offsets(self.find(request.group_id), request, self.offsets, exists)
        effects.reply(waiter, response)
        return effects

    # --- methods that remove expired offsets, and offsets of deleted topics -------------------------------------------

    def expire(self, group_id: str) -> Effects:
        """Log tombstones for the expired offsets of this group (KIP-211), and for the group itself when no offset is
        left."""
        effects = Effects()
        effects.may_be_divided = True
        group = self.groups.get(group_id)
        expired = expired_offsets(
            group_id, group, self.offsets, now_ms=self._now_ms(), retention_ms=self._config.offsets_retention_ms
        )
        for topic, partition in expired[:MAX_EXPIRED_PER_STEP]:
            effects.append(offset_record(group_id, topic, partition, None))
        left = sum(1 for _ in self.offsets.partitions_of(group_id)) - len(effects.records)
        if group is not None and left == 0 and self._is_unused(group):
            self._bury(group, effects)
        return effects

    def forget_topics(self, group_id: str, topics: frozenset[str], before: int) -> Effects:
        """Log tombstones for a group's offsets of deleted topics, because otherwise a consumer of a new topic with the
        same name would start at these offsets.

        Only offsets that were logged below the log offset `before` are deleted, since later offsets belong to the new
        topic. One step (call of the state machine) deletes at most MAX_EXPIRED_PER_STEP offsets."""
        effects = Effects()
        effects.may_be_divided = True
        for topic, partition in islice(self.offsets.of_topics(group_id, topics, before), MAX_EXPIRED_PER_STEP):
            effects.append(offset_record(group_id, topic, partition, None))
        return effects

    # --- private helpers of the state machine

    def _consumer_step(self, group: ConsumerGroup, effects: Effects) -> ConsumerStep:
        settings, topics = self.consumer_settings(group.group_id), self.topics()
        return ConsumerStep(group, self.groups, effects, self._config, settings, topics, self._now_ms(), self._new_id)

    def consumer_settings(self, group_id: str) -> ConsumerGroupSettings:
        """Return the settings of a group of the consumer protocol."""
        own, settings = self._overrides_of(group_id), self._config.consumer
        return settings.with_own(own) if own else settings

    def _consumers(self, group_id: str) -> ConsumerGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _step(self, group: ClassicGroup, effects: Effects) -> Step:
        return Step(group, effects, self._config, self._now_ms(), self._new_id)

    def _made(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            self._remove(group_id)
            group = self.groups[group_id] = ClassicGroup(group_id, self._held)
        return group

    def _joined(self, group_id: str) -> ClassicGroup:
        """Return the classic group of a member that sent a request. Raises KafkaError INVALID_GROUP_ID,
        UNKNOWN_MEMBER_ID.
        """
        _check_group_id(group_id)
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _is_unused(self, group: Group) -> bool:
        """Whether a group without offsets may be removed. A share group must not be removed here, because only
        DeleteGroups deletes its state at the share coordinators.
        """
        if isinstance(group, ClassicGroup):
            return group.state is GroupState.EMPTY and not group.pending_members
        return isinstance(group, ConsumerGroup | StreamsGroup) and not group.members

    def _forget_if_void(self, group: ClassicGroup) -> None:
        """Forget a group that was never logged and has no members."""
        if not group.is_logged and self._is_unused(group):
            self.groups.pop(group.group_id, None)


def _check_group_id(group_id: str) -> None:
    """Raises KafkaError INVALID_GROUP_ID if the group id is empty, because only groups without members may have the
    empty id.
    """
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
