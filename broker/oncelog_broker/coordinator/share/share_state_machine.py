"""The state machine of one partition of `__share_group_state`: the state of all share partitions that are stored there.
Pure.

A write is logged as a change or, after every `updates_per_snapshot` changes, as a snapshot of the entire state; loading
replays both. Only `initialize` sets the state epoch, and only `read` the leader epoch (KAFKA-19456). A method that
handles a request raises KafkaError to refuse the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from oncelog_broker.coordinator.effects import Effects, Encoded, TimerKey, Waiter
from oncelog_broker.coordinator.share import share_state_records as records
from oncelog_broker.coordinator.share.share_key import ShareKey
from oncelog_broker.coordinator.share.share_state import NOT_SET, ShareState
from oncelog_broker.coordinator.share.share_state_records import ShareStateRecord, SnapshotRecord, UpdateRecord
from oncelog_broker.coordinator.share.state_batches import KEPT_STATES, StateBatch, messages_of
from oncelog_protocol.coordinator_records.share_group_state import ShareUpdateValue
from oncelog_protocol.errors import ErrorCode, KafkaError

MAX_GONE_PER_STEP: Final = 100
"""Maximum number of tombstones that are logged at once for share partitions of deleted topics."""


class StateWrite(NamedTuple):
    """A change of the state that the leader of the partition writes. A `start_offset` of -1 leaves the start offset
    unchanged.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: Sequence[StateBatch]


class ShareStateMachine:
    """The state machine of one partition; `shard.Machine` documents the methods that the coordinator runtime calls.
    `now_ms` returns wall time; `exists(topic id, partition)` returns whether the partition exists; a snapshot is logged
    after `updates_per_snapshot` changes."""

    def __init__(
        self, now_ms: Callable[[], int], exists: Callable[[bytes, int], bool], updates_per_snapshot: int = 500
    ) -> None:
        self._now_ms = now_ms
        self._exists = exists
        self._updates_per_snapshot = updates_per_snapshot
        self.states: dict[ShareKey, ShareState] = {}

    # --- methods that the coordinator runtime calls

    records_replace_older: Final = False
    """False, because a logged change does not replace older changes."""

    def encode(self, record: ShareStateRecord) -> Encoded:
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> ShareStateRecord | None:
        return records.decode(key, value)

    def replay(self, record: ShareStateRecord, offset: int, producer_id: int) -> None:
        key = record.key
        if isinstance(record, SnapshotRecord):
            if record.value is None:
                self.states.pop(key, None)
            else:
                self.states[key] = ShareState.of_snapshot(record.value, offset)
        elif record.value is not None and key in self.states:
            self.states[key] = self.states[key].updated(record.value)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """Does nothing, because this topic has no transactions."""

    def on_loaded(self) -> Iterator[Effects]:
        return iter(())

    def on_timer(self, timer: TimerKey) -> Effects:
        raise AssertionError("there are no timers")

    def on_job(self, key: str, result: object) -> Effects:
        raise AssertionError("there are no jobs")

    def key_of(self, timer: TimerKey) -> str:
        raise AssertionError("there are no timers")

    def on_failed(self, key: str) -> Effects:
        # Nothing must be restored, because this state machine has no state that is not logged.
        return Effects()

    def on_unloaded(self, error: KafkaError) -> Effects:
        return Effects()

    # --- methods that handle requests ---------------------------------------------------------------------------------

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int, waiter: Waiter) -> Effects:
        """Initialize the state; a repeated request in the same state epoch changes nothing. Raises KafkaError
        FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST."""
        self._check_exists(key)
        if state_epoch < 0 or start_offset < NOT_SET:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the state epoch or the start offset is invalid")
        before = self.states.get(key)
        effects = Effects()
        effects.reply(waiter, None)
        if before is not None and state_epoch < before.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        if before is not None and state_epoch == before.state_epoch:
            # This request is a retry after a lost response; keep the state that the leader has written since the first
            # request.
            return effects
        now = self._now_ms()
        state = ShareState(
            state_epoch,
            -1 if before is None else before.leader_epoch,
            start_offset,
            snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
            created_ms=now,
        )
        effects.append(SnapshotRecord(key, state.snapshot(now)))
        return effects

    def read(self, key: ShareKey, leader_epoch: int, waiter: Waiter) -> Effects:
        """Reply with the state of the share partition (ShareState). A newer leader epoch is logged, which fences older
        leaders. Raises KafkaError FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST."""
        state = self._known(key)
        _check_leader_epoch(state, leader_epoch)
        effects = Effects()
        if leader_epoch > state.leader_epoch:
            value = ShareUpdateValue(
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=NOT_SET,
                state_batches=[],
            )
            effects.append(UpdateRecord(key, value))
        effects.reply(waiter, state)
        return effects

    def summary(self, key: ShareKey, leader_epoch: int) -> ShareState | None:
        """Return the state of a share partition, or None if there is no state; the leader epoch is checked but not
        logged. Raises KafkaError FENCED_LEADER_EPOCH."""
        state = self.states.get(key)
        if state is not None and leader_epoch != NOT_SET:
            _check_leader_epoch(state, leader_epoch)
        return state

    def write(self, key: ShareKey, write: StateWrite, waiter: Waiter) -> Effects:
        """Log a change of a share partition's state. Raises KafkaError FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST."""
        state = self._known(key)
        _check_leader_epoch(state, write.leader_epoch)
        if write.state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        if write.state_epoch > state.state_epoch or write.leader_epoch > state.leader_epoch:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the state epoch is newer than the current one")
        for batch in write.batches:
            if not 0 <= batch.first <= batch.last or batch.state not in KEPT_STATES or batch.deliveries < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"invalid batch of offsets: {batch}")
        value = ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=write.leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.complete_count,
            state_batches=messages_of(ShareUpdateValue.StateBatch, write.batches),
        )
        effects = Effects()
        if state.updates >= self._updates_per_snapshot:
            effects.append(self._snapshot(key, state.updated(value)))
        else:
            effects.append(UpdateRecord(key, value))
        effects.reply(waiter, None)
        return effects

    def delete(self, key: ShareKey, waiter: Waiter) -> Effects:
        """Delete the state of a share partition, if the state exists."""
        effects = Effects()
        if key in self.states:
            effects.append(SnapshotRecord(key, None))
        effects.reply(waiter, None)
        return effects

    # --- methods for the deletion of log records that newer snapshots replace -----------------------------------------

    def oldest_snapshot_offset(self) -> int | None:
        """Return the log offset below which no record is needed to load the share partitions; None if no record of the
        log is needed."""
        return min((state.snapshot_offset for state in self.states.values()), default=None)

    def cold(self, written_before_ms: int) -> list[ShareKey]:
        """Return the share partitions whose newest snapshot was written before `written_before_ms` (wall time)."""
        return [key for key, state in self.states.items() if state.written_ms < written_before_ms]

    def write_again(self, keys: Iterable[ShareKey]) -> Effects:
        """Log snapshots of these share partitions, so that older records of these share partitions are no longer
        needed. A share partition whose topic no longer exists gets a tombstone instead of a snapshot: no coordinator
        was available to remove it when the topic was deleted.
        """
        effects = Effects()
        effects.may_be_divided = True
        for key in keys:
            state = self.states.get(key)
            if state is not None:
                is_there = self._exists(key.topic_id, key.partition)
                effects.append(self._snapshot(key, state) if is_there else SnapshotRecord(key, None))
        return effects

    def forget_topics(self, topic_ids: frozenset[bytes]) -> Effects:
        """Log tombstones for share partitions of deleted topics, at most MAX_GONE_PER_STEP in one call."""
        effects = Effects()
        effects.may_be_divided = True
        for key in self.states:
            if key.topic_id in topic_ids:
                effects.append(SnapshotRecord(key, None))
                if len(effects.records) == MAX_GONE_PER_STEP:
                    break
        return effects

    # --- private helpers of the state machine

    def _snapshot(self, key: ShareKey, state: ShareState) -> SnapshotRecord:
        return SnapshotRecord(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1).snapshot(self._now_ms()))

    def _check_exists(self, key: ShareKey) -> None:
        if not self._exists(key.topic_id, key.partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _known(self, key: ShareKey) -> ShareState:
        """Return the state of a share partition. Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION; INVALID_REQUEST if the
        state is not initialized.
        """
        self._check_exists(key)
        state = self.states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the state of share partition {key.text} is not initialized")
        return state


def _check_leader_epoch(state: ShareState, leader_epoch: int) -> None:
    if leader_epoch < state.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
