"""Reads a range of a partition, with the outcome of each batch."""

from __future__ import annotations

from dataclasses import dataclass

from oncelog import TopicPartition
from oncelog.admin import Admin
from oncelog.errors import KafkaError
from oncelog_console.lookups.batch_outcomes import JudgedBatch, judged_stable, judged_unstable
from oncelog_protocol.messages.fetch import IsolationLevel


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of a log, from the requested offset up to `next_offset`. `is_end`: whether there were no further readable
    records after this range.
    """

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    batches: tuple[JudgedBatch, ...]
    next_offset: int

    @property
    def is_end(self) -> bool:
        return not self.batches


async def read_stretch(admin: Admin, partition: TopicPartition, offset: int, max_bytes: int) -> Stretch:
    """Read a range that lies entirely below or entirely above the last stable offset. Raises OffsetOutOfRange and other
    KafkaErrors.
    """
    asked = {partition: offset}
    stable = await admin.read_log(asked, max_bytes=max_bytes, isolation_level=IsolationLevel.READ_COMMITTED)
    part = stable[partition]
    judged = [each for each in judged_stable(part) if each.batch.last_offset >= offset]
    if not judged and offset < part.high_watermark:
        part = (await admin.read_log(asked, max_bytes=max_bytes))[partition]
        above = [batch for batch in part.batches if batch.last_offset >= offset]
        judged = judged_unstable(above, await open_transactions(admin, partition))
    next_offset = max((each.batch.next_offset for each in judged), default=offset)
    return Stretch(
        part.log_start_offset, part.last_stable_offset, part.high_watermark, tuple(judged), max(offset, next_offset)
    )


async def open_transactions(admin: Admin, partition: TopicPartition) -> dict[int, int]:
    """Return the first offset of each producer's open transaction, by producer id. The result is empty if the broker
    does not report open transactions at all, or does not report them to this user.
    """
    try:
        states = (await admin.transactions.producers([partition]))[partition]
    except KafkaError:
        return {}
    return {
        state.producer_id: state.transaction_start_offset
        for state in states
        if state.transaction_start_offset is not None
    }
