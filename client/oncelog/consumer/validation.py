"""Detects log truncation before a position, by leader epochs (KIP-320). Pure.

A position has the leader epoch of the batch before it, or the epoch given with a committed offset or a seek. An epoch
given with a committed offset or a seek may belong to no batch, for example because ListOffsets returns the leader's
epoch for the log end. Such an epoch therefore only shows which leaders are outdated; it proves nothing about the log's
content (S92).

A leader of a newer epoch may have different records from some offset on. This happens after an unclean election, and
after the loss of the only replica that had the records which a consumer has read. The consumer asks the leader for the
end offset of the position's epoch; an end below the position means that the log was truncated below the position.

    leader's epoch == position's epoch      READ: a leader only appends while its epoch lasts
    leader's epoch == the agreed epoch       READ
    one of the epochs is unknown            READ: nothing to compare (Metadata < 7, nothing read since a seek)
    leader's epoch <  position's epoch      BEHIND: the metadata are outdated, or the topic was re-created
    leader's epoch >  position's epoch      ASK: send OffsetForLeaderEpoch before the next Fetch
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from oncelog.cluster import NO_LEADER_EPOCH, TopicPartition
from oncelog.errors import LogTruncationError

NO_END: Final = -1
MAX_BEHIND: Final = 10
"""If this many consecutive metadata refreshes have a leader epoch below the position's epoch, the metadata are
accepted.
"""


class Standing(Enum):
    """The action that a position needs before the next Fetch."""

    READ = auto()
    ASK = auto()
    BEHIND = auto()


class EpochEnd(NamedTuple):
    """The largest epoch of a leader that is not above the requested epoch, and the end offset of that epoch; both are
    -1 if there is none.
    """

    epoch: int
    end_offset: int


def standing(position_epoch: int, agreed_epoch: int, leader_epoch: int) -> Standing:
    """Return what must happen before the next Fetch from a position: nothing, a metadata refresh, or an
    OffsetForLeaderEpoch request. `position_epoch` is the epoch of the batch before the position, `agreed_epoch`
    the epoch of the last leader whose log was found to contain that batch, and `leader_epoch` the epoch of the present
    leader; each may be NO_LEADER_EPOCH.
    """
    if leader_epoch in (position_epoch, agreed_epoch) or NO_LEADER_EPOCH in (position_epoch, leader_epoch):
        return Standing.READ
    return Standing.BEHIND if leader_epoch < position_epoch else Standing.ASK


def is_truncated(offset: int, position_epoch: int, end: EpochEnd, *, epoch_is_read: bool) -> bool:
    """Return whether the log of a leader that responds with `end` was truncated below `offset`.

    Kafka's consumer compares offsets only. If a batch of `position_epoch` was read (`epoch_is_read`), an end in an
    older epoch shows a truncation too, whatever its offset, because another batch has replaced the batch that was read.
    A response without any epoch (-1) shows a truncation too.
    """
    if epoch_is_read:
        return end.end_offset < offset or end.epoch < position_epoch
    return NO_END < end.end_offset < offset


def divergent_offset(offset: int, end: EpochEnd) -> int | None:
    """Return the first offset at which a truncated log differs from the records read; None means unknown."""
    return end.end_offset if NO_END < end.end_offset < offset and end.epoch > NO_LEADER_EPOCH else None


def truncation_error(partition: TopicPartition, offset: int, divergent: int | None) -> LogTruncationError:
    """Return the error for a truncated log if auto.offset.reset is "none"."""
    unknown = "the offset at which it differs from the records read is unknown"
    where = unknown if divergent is None else f"from offset {divergent} on"
    return LogTruncationError(
        f"{partition}: the log was truncated below offset {offset}, {where}, and auto.offset.reset is none:"
        " seek to where to go on",
        partition,
        offset,
        divergent,
    )
