"""Finds pending offsets of groups: the group and partition, the open transaction, and the time at which the transaction
ends.

A transaction commits the offsets of its input together with its output (KIP-447). While the transaction is open,
members that fetch these offsets wait. If a process dies, another process takes over its partitions. The new process
reads nothing until the dead process's transaction has ended, at the latest after transaction.timeout.ms. Neither the
group
nor its topics show the reason for the wait. This module finds the reason in __consumer_offsets, by reading the open
transactions of that topic and their records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from oncelog.admin.hanging import Explanation, OpenTransaction
from oncelog.clock import now_ms
from oncelog.cluster import NO_NODE, TopicPartition
from oncelog.errors import ErrorCode, KafkaError
from oncelog.metadata.internal_topics import partition_for
from oncelog_protocol.coordinator_records.consumer_offsets import (
    OFFSET_COMMIT_KEY_VERSIONS,
    OffsetCommitKey,
    OffsetCommitValue,
)
from oncelog_protocol.coordinator_records.versioned import decode_versioned, read_version
from oncelog_protocol.errors import MalformedMessage
from oncelog_protocol.records.batch import CorruptBatch, RecordBatch
from oncelog_protocol.records.columns import read_columns

if TYPE_CHECKING:
    from oncelog.admin.admin import Admin

CONSUMER_OFFSETS: Final = "__consumer_offsets"
FETCH_BYTES: Final = 1024 * 1024
MAX_READ_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes that are read from one partition of __consumer_offsets, starting at its first open transaction. If more
bytes follow the first open transaction, pending offsets beyond this limit are not found.
"""


@dataclass(frozen=True, slots=True)
class PendingOffset:
    """An offset that is committed when `transaction` commits. `explained` describes how the transaction holds back its
    partition of __consumer_offsets: its start, its end, and whether it hangs.
    """

    group_id: str
    partition: TopicPartition
    offset: int
    transaction: OpenTransaction
    explained: Explanation

    @property
    def transactional_id(self) -> str | None:
        """The transactional id; None if no coordinator knows the producer id."""
        return None if self.transaction.held is None else self.transaction.held.transactional_id


async def pending_offsets(admin: Admin, group_ids: Collection[str] | None = None) -> list[PendingOffset]:
    """Return the pending offsets of open transactions in these groups (None means all groups), sorted by group and
    partition.

    The caller needs the rights of `admin.transactions.explain`, and Read on __consumer_offsets. Raises KafkaError,
    PartialFailure.
    """
    explained = await admin.transactions.explain(await _partitions(admin, group_ids))
    found: list[PendingOffset] = []
    for each in explained.values():
        if each.pinned_by is not None:
            found += await _held(admin, each, [each.pinned_by, *each.later])
    wanted = [pending for pending in found if group_ids is None or pending.group_id in group_ids]
    return sorted(wanted, key=lambda pending: (pending.group_id, pending.partition))


async def _partitions(admin: Admin, group_ids: Collection[str] | None) -> list[TopicPartition]:
    """Return the partitions of __consumer_offsets that store these groups and have a leader; the result is empty if the
    topic does not exist yet.
    """
    try:
        known = (await admin.describe_topics([CONSUMER_OFFSETS]))[CONSUMER_OFFSETS].partitions
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        raise
    keeping = known if group_ids is None else {partition_for(group_id, len(known)) for group_id in group_ids}
    return [
        TopicPartition(CONSUMER_OFFSETS, index)
        for index in sorted(keeping)
        if index in known and known[index].leader != NO_NODE
    ]


async def _held(admin: Admin, explained: Explanation, open_here: list[OpenTransaction]) -> list[PendingOffset]:
    """Return the offsets in the records of one partition's open transactions; if several records have the same key, the
    last of them counts.
    """
    by_producer = {each.producer.producer_id: each for each in open_here}
    found: dict[tuple[str, TopicPartition], PendingOffset] = {}
    partition = explained.partition
    offset, left = explained.last_stable_offset, MAX_READ_BYTES
    while offset < explained.high_watermark and left > 0:
        part = (await admin.read_log({partition: offset}, max_bytes=FETCH_BYTES))[partition]
        if not part.batches:
            break
        for batch in part.batches:
            left -= len(batch.view)
            offset = max(offset, batch.next_offset)
            transaction = by_producer.get(batch.producer_id)
            if transaction is not None and is_part_of(batch, transaction):
                why = _pinned_by(explained, transaction)
                for (group_id, of), committed in committed_by(batch).items():
                    found[group_id, of] = PendingOffset(group_id, of, committed, transaction, why)
    return list(found.values())


def is_part_of(batch: RecordBatch, transaction: OpenTransaction) -> bool:
    """Return whether a batch of the transaction's producer belongs to the open transaction, and not to an earlier
    transaction that has ended.
    """
    return batch.is_transactional and not batch.is_control and batch.base_offset >= transaction.start_offset


def committed_by(batch: RecordBatch) -> Mapping[tuple[str, TopicPartition], int]:
    """Return the offsets that a batch of __consumer_offsets commits; unreadable records commit nothing."""
    found: dict[tuple[str, TopicPartition], int] = {}
    try:
        columns = read_columns(batch, max_decompressed_bytes=MAX_READ_BYTES)
    except CorruptBatch:
        return found
    for key, value in _pairs(columns.keys, columns.values):
        try:
            if read_version(key) not in OFFSET_COMMIT_KEY_VERSIONS:
                continue
            of = decode_versioned(OffsetCommitKey, key)
            found[of.group, TopicPartition(of.topic, of.partition)] = decode_versioned(OffsetCommitValue, value).offset
        except MalformedMessage:
            continue
    return found


def _pairs(keys: Iterable[bytes | None], values: Iterable[bytes | None]) -> Iterable[tuple[bytes, bytes]]:
    """Return the records that have both a key and a value; a record without a value deletes an offset."""
    return ((key, value) for key, value in zip(keys, values, strict=True) if key is not None and value is not None)


def _pinned_by(explained: Explanation, transaction: OpenTransaction) -> Explanation:
    """Return the explanation of the partition that would apply if `transaction` were its first open transaction."""
    if transaction is explained.pinned_by:
        return replace(explained, later=())
    limits = explained.limits
    return replace(
        explained,
        pinned_by=transaction,
        hang=transaction.hang(now_ms(), limits),
        ends_by_ms=transaction.ends_by_ms(limits),
        first_timestamp_ms=None,
        later=(),
    )
