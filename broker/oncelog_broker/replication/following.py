"""What a follower does with the leader's answer to its fetch, for one partition. No I/O but that of the log.

An answer counts only if the replica still is where it was when it asked: in that leader epoch, with that end of its
log. Whatever came in between (another leader, a truncation) makes it worthless, however it was delayed.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.replica import Replica
from oncelog_broker.replication.truncation import truncation_offset
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.fetch import FetchResponse

PartitionAnswer = FetchResponse.FetchableTopicResponse.PartitionData


class CutAt(NamedTuple):
    """Give up what lies behind this offset: the leader does not have it."""

    offset: int


class BeginAt(NamedTuple):
    """Give up everything, and go on from here: what lies before is no longer at the leader."""

    offset: int


def position_of(replica: Replica) -> FetchPosition:
    """What the replica says when it asks for more."""
    log = replica.log
    return FetchPosition(log.log_end_offset, log.latest_epoch, replica.leader_epoch, log.state.durable_start_offset)


def is_still_at(replica: Replica, asked: FetchPosition) -> bool:
    """Whether an answer to that question is one to what the replica would ask now."""
    here = position_of(replica)
    return (
        not replica.leads
        and not replica.log.state.is_truncating
        and here.leader_epoch == asked.leader_epoch
        and here.offset == asked.offset
        and here.last_fetched_epoch == asked.last_fetched_epoch
    )


def take(replica: Replica, asked: FetchPosition, answer: PartitionAnswer) -> CutAt | BeginAt | None:
    """Take the leader's answer, to what the replica `is_still_at`; what is to be done about its log first, which waits
    for the disk.

    Raises KafkaError: the leader's, OFFSET_OUT_OF_RANGE included where the leader has not said enough to go on; or what
    Replica.append_as_follower raises.
    """
    log = replica.log
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and log.log_end_offset < answer.log_start_offset:
        return BeginAt(answer.log_start_offset)
    if answer.error_code:
        raise KafkaError(ErrorCode.of(answer.error_code))
    diverging = answer.diverging_epoch
    if diverging is not None:
        return CutAt(truncation_offset(log.leader_epochs, log.log_end_offset, diverging.epoch, diverging.end_offset))
    replica.append_as_follower(
        memoryview(answer.records or b""),
        leader_epoch=asked.leader_epoch,
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
    )
    return None


def cut(replica: Replica, wanted: CutAt | BeginAt) -> None:
    """Change the log so; it waits for the disk. Raises KAFKA_STORAGE_ERROR."""
    if isinstance(wanted, CutAt):
        replica.log.trimmer.truncate_to(wanted.offset)
    else:
        replica.log.trimmer.truncate_fully_and_start_at(wanted.offset)
