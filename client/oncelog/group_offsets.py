"""What a group commits, and who commits it: the values that consumers and transactions pass to each other."""

from __future__ import annotations

from typing import NamedTuple

from oncelog.cluster import NO_LEADER_EPOCH


class OffsetAndMetadata(NamedTuple):
    """`offset` of the next record to read; `metadata` is the application's own text; `leader_epoch` of the record
    before `offset`, -1 where it is not known."""

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


class ConsumerGroupMetadata(NamedTuple):
    """Who a consumer is in its group: what a transaction needs to commit its offsets (KIP-447)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


Offset = int | OffsetAndMetadata


def offset_and_metadata(offset: Offset) -> OffsetAndMetadata:
    """Raises ValueError for a negative one."""
    told = OffsetAndMetadata(offset) if isinstance(offset, int) else OffsetAndMetadata(*offset)
    if told.offset < 0:
        raise ValueError(f"offset {told.offset}: must not be negative")
    return told
