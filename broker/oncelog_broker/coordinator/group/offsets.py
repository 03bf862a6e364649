"""The committed offsets of groups: replaying them from the log, fetching and expiring them. Pure.

Offsets that a transaction commits are pending until the transaction's marker: a fetch does not return pending offsets,
and an abort drops them (S37). When a transaction commits, its pending offset replaces the committed offset of the same
partition, unless the committed offset was logged later. A tombstone also deletes the pending offset with the same key,
because compaction removes every earlier record with this key, even a record of an open transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from oncelog_protocol.coordinator_records.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from oncelog_protocol.records.batch import NO_PRODUCER_ID

NO_EXPIRY: Final = -1
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class CommittedOffset(NamedTuple):
    """The offset up to which a group has read a partition. `record_offset` is the offset at which this commit was
    logged in `__consumer_offsets`. Timestamps are in ms."""

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
    """The committed offsets of all groups of one shard (partition of `__consumer_offsets`): group -> topic -> partition
    -> offset. A topic or group without committed offsets is removed from the mapping.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: dict[int, dict[PartitionOfGroup, CommittedOffset]] = {}
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}
        """Group -> (topic, partition) -> ids of the producers whose open transactions commit an offset of this
        partition."""

    # --- methods that replay records of the log -----------------------------------------------------------------------

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int, producer_id: int
    ) -> None:
        """Apply a logged commit. A `value` of None is a tombstone, which is never part of a transaction."""
        where = PartitionOfGroup(key.group, key.topic, key.partition)
        if value is None:
            self._remove(where)
            for producer in self._open.get(where.group_id, _NOTHING).get(where[1:], ()):
                del self._pending[producer][where]
            self._close(where)
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
        self._pending.setdefault(producer_id, {})[where] = committed
        self._open.setdefault(where.group_id, {}).setdefault(where[1:], set()).add(producer_id)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        for where, offset in self._pending.pop(producer_id, {}).items():
            producers = self._open[where.group_id][where[1:]]
            producers.discard(producer_id)
            if not producers:
                self._close(where)
            present = self.get(*where)
            if committed and (present is None or present.record_offset < offset.record_offset):
                self._put(where, offset)

    def _close(self, where: PartitionOfGroup) -> None:
        """Note in `_open` that no open transaction commits an offset of this partition of the group any more."""
        partitions = self._open.get(where.group_id)
        if partitions is not None:
            partitions.pop(where[1:], None)
            if not partitions:
                del self._open[where.group_id]

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

    # --- methods that find offsets ------------------------------------------------------------------------------------

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._groups.get(group_id, _NOTHING).get(topic, _NOTHING).get(partition)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return the committed offsets of a group: topic -> partition -> offset. Callers must not change the
        mapping."""
        return self._groups.get(group_id, _NOTHING)

    def groups(self) -> Collection[str]:
        """Return the groups that have committed or pending offsets."""
        return self._groups.keys() | self._open.keys()

    def has(self, group_id: str) -> bool:
        """Whether the group has committed or pending offsets."""
        return group_id in self._groups or group_id in self._open

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction commits an offset of this partition."""
        return (topic, partition) in self._open.get(group_id, _NOTHING)

    def pending_only(self, group_id: str) -> Mapping[str, Collection[int]]:
        """Return the partitions that have no committed offset, and for which an open transaction commits an offset:
        topic -> partitions.
        """
        found: dict[str, list[int]] = {}
        for topic, partition in self._open.get(group_id, ()):
            if self.get(group_id, topic, partition) is None:
                found.setdefault(topic, []).append(partition)
        return found

    def keeps(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether the group has a committed or pending offset of this partition."""
        return self.get(group_id, topic, partition) is not None or self.is_pending(group_id, topic, partition)

    def partitions_of(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Return the (topic, partition) pairs of the group's committed and pending offsets."""
        of_group = self.of_group(group_id)
        for topic, partitions in of_group.items():
            for partition in partitions:
                yield topic, partition
        for topic, partition in self._open.get(group_id, ()):
            if partition not in of_group.get(topic, _NOTHING):
                yield topic, partition

    def of_topics(self, group_id: str, topics: Collection[str], before: int) -> Iterator[tuple[str, int]]:
        """Return the partitions of `topics` for which the group has committed or pending offsets. A partition with an
        offset that was logged at or above the log offset `before` is left out.
        """
        for topic, partition in self.partitions_of(group_id):
            if topic in topics and self._newest(PartitionOfGroup(group_id, topic, partition)) < before:
                yield topic, partition

    def _newest(self, where: PartitionOfGroup) -> int:
        """Return the log offset of the newest committed or pending offset of `where`."""
        pending: Collection[int] = self._open.get(where.group_id, _NOTHING).get(where[1:], ())
        kept = [self._pending[producer][where] for producer in pending]
        committed = self.get(*where)
        return max(offset.record_offset for offset in (*kept, *([] if committed is None else [committed])))

    def expired(
        self,
        group_id: str,
        *,
        now_ms: int,
        retention_ms: int,
        empty_since_ms: int | None,
        keep_topics: Collection[str] = (),
    ) -> list[tuple[str, int]]:
        """Return the (topic, partition) pairs whose offsets have expired (KIP-211).

        The retention time starts at `empty_since_ms`; if `empty_since_ms` is None, it starts at the time of each
        commit. An offset that was committed with an expiry time (OffsetCommit before v5) expires at that time. Offsets
        of topics in `keep_topics`, and offsets that an open transaction is about to replace, do not expire.
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
