"""All groups and committed offsets of one partition of `__consumer_offsets`: the machine that the runtime drives. Pure.

A group that only keeps offsets (a consumer that assigns partitions by itself) has no ClassicGroup: nothing is known of
it but the offsets. Requests raise KafkaError to refuse; their effects say the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from oncelog_broker.coordinator.effects import Effects, Encoded, TimerKey, Waiter
from oncelog_broker.coordinator.group import joining, membership, records, transactional_offsets
from oncelog_broker.coordinator.group.classic_group import ClassicGroup
from oncelog_broker.coordinator.group.commits import Commit, Exists, check_no_members, expire_timestamp
from oncelog_broker.coordinator.group.config import GroupConfig
from oncelog_broker.coordinator.group.held_bytes import HeldBytes
from oncelog_broker.coordinator.group.offsets import CommittedOffsets
from oncelog_broker.coordinator.group.records import CoordinatorRecord, OffsetRecord, group_record, offset_record
from oncelog_broker.coordinator.group.states import GroupState
from oncelog_broker.coordinator.group.step import GroupTimer, Step, TimerKind
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from oncelog_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from oncelog_protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from oncelog_protocol.messages.sync_group import SyncGroupRequest
from oncelog_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

MAX_EXPIRED_PER_STEP: Final = 500
"""Tombstones in one batch of the expiry: a few milliseconds of work."""

CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
CommitPartition = CommitTopic.OffsetCommitResponsePartition


class GroupMachine:
    """See `runtime.Machine`. `now_ms` is wall time; `new_id` makes the unique part of a member id; `held` is what the
    groups of all machines of the broker take."""

    def __init__(
        self,
        config: GroupConfig,
        now_ms: Callable[[], int],
        new_id: Callable[[], str],
        held: HeldBytes | None = None,
    ) -> None:
        self._held = held or HeldBytes()
        self._config = config
        self._now_ms = now_ms
        self._new_id = new_id
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = CommittedOffsets()

    # --- the runtime's

    def encode(self, record: CoordinatorRecord) -> Encoded:
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        return records.decode(key, value)

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.replay(record.key, record.value, offset, producer_id)
        elif record.value is None:
            gone = self.groups.pop(record.key.group, None)
            if gone is not None:
                gone.let_go()
                gone.transition_to(GroupState.DEAD)
        else:
            self._made(record.key.group).replay(record.value)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        self.offsets.replay_end_transaction(producer_id, committed)

    def on_loaded(self) -> Iterator[Effects]:
        for group in list(self.groups.values()):
            if self.groups.get(group.group_id) is group:
                effects = Effects()
                self._step(group, effects).start_sessions()
                yield effects

    def on_timer(self, timer: TimerKey) -> Effects:
        effects = Effects()
        assert isinstance(timer, GroupTimer)
        group = self.groups.get(timer.group_id)
        if group is None:
            return effects
        step = self._step(group, effects)
        if timer.kind == TimerKind.SESSION:
            membership.on_session_timer(step, timer.member_id)
        elif timer.kind == TimerKind.JOIN:
            joining.on_join_timer(step)
        else:
            membership.on_sync_timer(step)
        self._forget_if_void(group)
        return effects

    def key_of(self, timer: TimerKey) -> str:
        assert isinstance(timer, GroupTimer)
        return timer.group_id

    def on_failed(self, key: str) -> Effects:
        """The group is what was logged of it last: the rebalance that was going on is forgotten, who waited has been
        answered and joins again."""
        effects = Effects()
        failed = self.groups.pop(key, None)
        if failed is None:
            return effects
        failed.let_go()
        self._step(failed, effects).cancel_timers()
        if failed.last_logged is not None:
            group = self._made(key)
            group.replay(failed.last_logged)
            self._step(group, effects).start_sessions()
        return effects

    def on_unloaded(self, error: KafkaError) -> Effects:
        effects = Effects()
        for group in self.groups.values():
            group.let_go()
            for waiter in (*group.joining.values(), *group.syncing.values()):
                effects.reply(waiter, error)
        return effects

    # --- members

    def join(self, asked: joining.Join) -> Effects:
        request, config = asked.request, self._config
        _check_group_id(request.group_id)
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"{request.session_timeout_ms} ms: group.min.session.timeout.ms={config.min_session_timeout_ms}, "
                f"group.max.session.timeout.ms={config.max_session_timeout_ms}",
            )
        group = self._made(request.group_id) if request.member_id == "" else self._joined(request.group_id)
        effects = Effects()
        try:
            joining.join(self._step(group, effects), asked)
        finally:
            self._forget_if_void(group)
        return effects

    def sync(self, request: SyncGroupRequest, waiter: Waiter) -> Effects:
        effects = Effects()
        membership.sync(self._step(self._joined(request.group_id), effects), request, waiter)
        return effects

    def heartbeat(self, request: HeartbeatRequest, waiter: Waiter) -> Effects:
        effects = Effects()
        code = membership.heartbeat(self._step(self._joined(request.group_id), effects), request)
        effects.reply(waiter, HeartbeatResponse(error_code=code))
        return effects

    def leave(self, group_id: str, members: Collection[LeaveGroupRequest.MemberIdentity], waiter: Waiter) -> Effects:
        """Answers with one result per member; a request before v3 has one member, whose error is that of the whole."""
        effects = Effects()
        group = self._joined(group_id)
        responses = membership.leave(self._step(group, effects), members)
        self._forget_if_void(group)
        effects.reply(waiter, LeaveGroupResponse(error_code=ErrorCode.NONE, members=responses))
        return effects

    # --- groups

    def known(self) -> Iterable[ClassicGroup]:
        """Every group, those that only keep offsets too."""
        yield from self.groups.values()
        for group_id in self.offsets.groups():
            if group_id not in self.groups:
                yield ClassicGroup(group_id)

    def ids(self) -> list[str]:
        """Of every group, those that only keep offsets too. A snapshot."""
        return [*self.groups, *(group_id for group_id in self.offsets.groups() if group_id not in self.groups)]

    def find(self, group_id: str) -> ClassicGroup:
        """Raises KafkaError GROUP_ID_NOT_FOUND. What is found must not be changed."""
        group = self.groups.get(group_id)
        if group is not None:
            return group
        if self.offsets.has(group_id):
            return ClassicGroup(group_id)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")

    def delete(self, group_id: str) -> Effects:
        """Delete a group without members, with its offsets, those that open transactions commit too: their end must
        not bring the group back. The caller adds the reply."""
        group = self.find(group_id)
        if group.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        effects = Effects()
        effects.may_be_divided = True
        for topic, partition in self.offsets.partitions_of(group_id):
            effects.append(offset_record(group_id, topic, partition, None))
        if group.is_logged:
            effects.append(group_record(group_id, None))
        else:
            effects.changes.append(lambda: self.groups.pop(group_id, None))
        return effects

    # --- offsets

    def commit(
        self,
        request: OffsetCommitRequest,
        exists: Exists,
        waiter: Waiter,
        refused: Collection[CommitTopic] = (),
    ) -> Effects:
        """Serve an OffsetCommit; a partition that does not exist is refused. `refused` joins the answer."""
        effects = Effects()
        effects.too_large = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        self._check_commit(request, effects)
        now_ms = self._now_ms()
        commit = Commit(
            request.group_id,
            now_ms,
            exists,
            self._config.offset_metadata_max_bytes,
            expire_timestamp(now_ms, request.retention_time_ms),
        )
        topics = [
            CommitTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    CommitPartition(
                        partition_index=partition.partition_index, error_code=commit.add(effects, topic.name, partition)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        effects.reply(waiter, OffsetCommitResponse(topics=[*refused, *topics]))
        return effects

    def _check_commit(self, request: OffsetCommitRequest, effects: Effects) -> None:
        """Whether this member, of this generation, may commit; without either the group must be empty. Raises
        KafkaError as `check_generation`, and REBALANCE_IN_PROGRESS."""
        generation = request.generation_id_or_member_epoch
        group = self.groups.get(request.group_id)
        if group is None:
            check_no_members(generation, has_offsets=self.offsets.has(request.group_id))
            return
        if generation < 0 and group.state is GroupState.EMPTY:
            return
        member = membership.check_generation(group, request.member_id, request.group_instance_id, generation)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._step(group, effects).start_session(member)

    def commit_in_transaction(self, request: TxnOffsetCommitRequest, exists: Exists, waiter: Waiter) -> Effects:
        """Serve a TxnOffsetCommit. Raises KafkaError as `transactional_offsets.check_member`."""
        group_id = request.group_id
        transactional_offsets.check_member(self.groups.get(group_id), request, has_offsets=self.offsets.has(group_id))
        commit = Commit(group_id, self._now_ms(), exists, self._config.offset_metadata_max_bytes)
        effects, response = transactional_offsets.commit_in_transaction(request, commit)
        effects.reply(waiter, response)
        return effects

    def delete_offsets(self, request: OffsetDeleteRequest, exists: Exists, waiter: Waiter) -> Effects:
        """Serve an OffsetDelete: offsets of topics that the group does not read."""
        _check_group_id(request.group_id)
        group = self.find(request.group_id)
        if group.state is not GroupState.EMPTY and not group.is_consumer_group:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        reads = group.topics() if group.members else frozenset()
        effects = Effects()
        effects.may_be_divided = True
        response = OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=[])
        for topic in request.topics:
            is_read = reads is None or topic.name in reads
            answers = []
            for partition in topic.partitions:
                index = partition.partition_index
                if not exists(topic.name, index):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
                if code is ErrorCode.NONE and self.offsets.keeps(request.group_id, topic.name, index):
                    effects.append(offset_record(request.group_id, topic.name, index, None))
                answers.append(
                    OffsetDeleteResponse.OffsetDeleteResponseTopic.OffsetDeleteResponsePartition(
                        partition_index=index, error_code=code
                    )
                )
            response.topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        effects.reply(waiter, response)
        return effects

    # --- expiry

    def expire(self, group_id: str) -> Effects:
        """Tombstones for what of this group is old enough to go (KIP-211), and for the group when nothing is left."""
        effects = Effects()
        effects.may_be_divided = True
        group = self.groups.get(group_id)
        expired = self._expired(group_id, group)
        for topic, partition in expired[:MAX_EXPIRED_PER_STEP]:
            effects.append(offset_record(group_id, topic, partition, None))
        left = sum(1 for _ in self.offsets.partitions_of(group_id)) - len(effects.records)
        if group is not None and left == 0 and self._is_unused(group):
            if group.is_logged:
                effects.append(group_record(group_id, None))
            else:
                effects.changes.append(lambda: self.groups.pop(group_id, None))
        return effects

    def _expired(self, group_id: str, group: ClassicGroup | None) -> list[tuple[str, int]]:
        empty_since_ms, keep_topics = None, frozenset[str]()
        if group is not None and group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                empty_since_ms = group.state_since_ms
            else:
                reads = group.topics() if group.state is GroupState.STABLE else None
                if reads is None:
                    return []
                keep_topics = reads
        return self.offsets.expired(
            group_id,
            now_ms=self._now_ms(),
            retention_ms=self._config.offsets_retention_ms,
            empty_since_ms=empty_since_ms,
            keep_topics=keep_topics,
        )

    def forget_topics(self, group_id: str, topics: frozenset[str], before: int) -> Effects:
        """Tombstones for a group's offsets of topics that were deleted, or a new topic of that name would be read from
        there.

        Only what was logged `before` that log offset: the rest belongs to the new topic. Some at a time.
        """
        effects = Effects()
        effects.may_be_divided = True
        for topic, partition in islice(self.offsets.of_topics(group_id, topics, before), MAX_EXPIRED_PER_STEP):
            effects.append(offset_record(group_id, topic, partition, None))
        return effects

    # --- inside

    def _step(self, group: ClassicGroup, effects: Effects) -> Step:
        return Step(group, effects, self._config, self._now_ms(), self._new_id)

    def _made(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._held)
        return group

    def _joined(self, group_id: str) -> ClassicGroup:
        """A group with members, for a request of one of them. Raises KafkaError INVALID_GROUP_ID, UNKNOWN_MEMBER_ID."""
        _check_group_id(group_id)
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def _is_unused(self, group: ClassicGroup) -> bool:
        return group.state is GroupState.EMPTY and not group.pending_members

    def _forget_if_void(self, group: ClassicGroup) -> None:
        """A group that was never logged and has nobody is no group."""
        if not group.is_logged and self._is_unused(group):
            self.groups.pop(group.group_id, None)


def _check_group_id(group_id: str) -> None:
    """No group with members has the empty id. Raises KafkaError INVALID_GROUP_ID."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
