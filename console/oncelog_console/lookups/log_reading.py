"""A stretch of a partition, with the fate of each of its batches."""

from __future__ import annotations

from dataclasses import dataclass

from oncelog import TopicPartition
from oncelog.admin import Admin
from oncelog.errors import KafkaError
from oncelog_console.lookups.batch_outcomes import JudgedBatch, judged_stable, judged_unstable
from oncelog_protocol.messages.fetch import IsolationLevel


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a log, from the requested offset up to `next_offset`. `is_end`: nothing more was readable."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    batches: tuple[JudgedBatch, ...]
    next_offset: int

    @property
    def is_end(self) -> bool:
        return not self.batches


async def read_stretch(admin: Admin, partition: TopicPartition, offset: int, max_bytes: int) -> Stretch:
    """Either below the last stable offset or above it. Raises OffsetOutOfRange and other KafkaErrors."""
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
    """Producer id -> first offset of its open transaction. Empty if the broker does not report them, or not to us."""
    try:
        states = (await admin.transactions.producers([partition]))[partition]
    except KafkaError:
        return {}
    return {
        state.producer_id: state.transaction_start_offset
        for state in states
        if state.transaction_start_offset is not None
    }
