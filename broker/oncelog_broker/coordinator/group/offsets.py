"""Committed offsets of groups: replayed from the log, fetched, expired. Pure.

Offsets that a transaction commits are pending until its marker: invisible to fetches, dropped when it aborts (S37). An
offset committed meanwhile outside the transaction stands if it was logged later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from oncelog_protocol.coordinator_records.consumer_offsets import OffsetCommitKey, OffsetCommitValue

NO_EXPIRY: Final = -1
NO_PRODUCER_ID: Final = -1
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class CommittedOffset(NamedTuple):
    """How far a group has read in a partition. `record_offset` is where that lies in the log."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    record_offset: int


class PartitionOfGroup(NamedTuple):
    group_id: str
    topic: str
    partition: int


class CommittedOffsets:
    """The offsets of all groups of one shard: group -> topic -> partition. No empty mappings are kept."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: dict[int, dict[PartitionOfGroup, CommittedOffset]] = {}
        self._pending_count: Counter[PartitionOfGroup] = Counter()

    # --- replayed

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int, producer_id: int
    ) -> None:
        """Take in a logged commit, or with None a tombstone (which no transaction writes)."""
        where = PartitionOfGroup(key.group, key.topic, key.partition)
        if value is None:
            self._remove(where)
            return
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            record_offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(where, committed)
            return
        pending = self._pending.setdefault(producer_id, {})
        self._pending_count[where] += where not in pending
        pending[where] = committed

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        for where, offset in self._pending.pop(producer_id, {}).items():
            self._pending_count[where] -= 1
            if not self._pending_count[where]:
                del self._pending_count[where]
            present = self.get(*where)
            if committed and (present is None or present.record_offset < offset.record_offset):
                self._put(where, offset)

    def _put(self, where: PartitionOfGroup, committed: CommittedOffset) -> None:
        self._groups.setdefault(where.group_id, {}).setdefault(where.topic, {})[where.partition] = committed

    def _remove(self, where: PartitionOfGroup) -> None:
        topics = self._groups.get(where.group_id, {})
        partitions = topics.get(where.topic, {})
        partitions.pop(where.partition, None)
        if not partitions:
            topics.pop(where.topic, None)
        if not topics:
            self._groups.pop(where.group_id, None)

    # --- asked

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._groups.get(group_id, _NOTHING).get(topic, _NOTHING).get(partition)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Topic -> partition -> offset; treat as read-only."""
        return self._groups.get(group_id, _NOTHING)

    def groups(self) -> Collection[str]:
        """The groups that have offsets."""
        return self._groups.keys()

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction commits an offset here."""
        return (group_id, topic, partition) in self._pending_count

    def has_pending(self, group_id: str) -> bool:
        return any(where.group_id == group_id for where in self._pending_count)

    def partitions_of(self, group_id: str) -> Iterator[tuple[str, int]]:
        for topic, partitions in self.of_group(group_id).items():
            for partition in partitions:
                yield topic, partition

    def expired(
        self,
        group_id: str,
        *,
        now_ms: int,
        retention_ms: int,
        empty_since_ms: int | None,
        keep_topics: Collection[str] = (),
    ) -> list[tuple[str, int]]:
        """The (topic, partition) pairs whose offsets may go (KIP-211).

        Retention counts from `empty_since_ms`, or where that is None from each commit. An offset that was committed
        with an expiry of its own (OffsetCommit before v5) keeps to that. Topics in `keep_topics` and offsets that an
        open transaction is about to replace stay.
        """
        gone = []
        for topic, partitions in self.of_group(group_id).items():
            if topic in keep_topics:
                continue
            for partition, committed in partitions.items():
                if committed.expire_timestamp != NO_EXPIRY:
                    due = committed.expire_timestamp
                else:
                    base = committed.commit_timestamp if empty_since_ms is None else empty_since_ms
                    due = base + retention_ms
                if now_ms >= due and not self.is_pending(group_id, topic, partition):
                    gone.append((topic, partition))
        return gone
