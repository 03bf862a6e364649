"""Values for committed offsets and group membership that consumers and transactions exchange."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.cluster import NO_LEADER_EPOCH

MAX_OFFSET: Final = 2**63 - 1
"""The largest offset, the largest int64."""


class OffsetAndMetadata(NamedTuple):
    """A committed offset. `offset` is the offset of the next record to read, `metadata` a text of the application, and
    `leader_epoch` the epoch of the record before `offset`, -1 if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = NO_LEADER_EPOCH


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's identity in its group; a transaction needs it to commit the consumer's offsets (KIP-447)."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


Offset = int | OffsetAndMetadata


def offset_and_metadata(offset: Offset) -> OffsetAndMetadata:
    """Convert an offset to OffsetAndMetadata. Raises ValueError for an offset that is negative or above MAX_OFFSET."""
    told = OffsetAndMetadata(offset) if isinstance(offset, int) else OffsetAndMetadata(*offset)
    check_offset(told.offset)
    return told


def check_offset(offset: int) -> None:
    """Raise ValueError for an offset that is negative or above MAX_OFFSET."""
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"offset {offset}: must be from 0 to {MAX_OFFSET}")
