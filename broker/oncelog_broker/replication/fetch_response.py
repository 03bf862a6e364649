"""Applies the leader's Fetch response to one partition of a follower. The only I/O in this module is the I/O of the
log.

A response is applied only if the replica's leader epoch and log end offset are still those of the request. After
another election or a truncation, a late response to the earlier request is therefore ignored.
"""

from __future__ import annotations

from copy import copy

from oncelog_broker.replication.follower_progress import FetchPosition
from oncelog_broker.replication.replica import Replica
from oncelog_broker.replication.truncation import truncation_offset
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.messages.fetch import FetchResponse
from oncelog_protocol.records.batch import Buffer, CorruptBatch, RecordBatch

PartitionAnswer = FetchResponse.FetchableTopicResponse.PartitionData


class TruncateTo(NamedTuple):
    """Type of a required truncation: truncate the log to `offset`, because the leader has no records from this offset
    on.
    """

    offset: int


class RestartAt(NamedTuple):
    """Type of a required restart: delete all records of the log and restart the log at `offset`, because the leader has
    deleted all earlier records.
    """

    offset: int
    leader_epoch: int = -1
    """The leader epoch in which `answer` was fetched."""
    answer: PartitionAnswer | None = None
    """A copy of the leader's response whose records are only its first batch: the replica appends this batch after the
    restart. None if the replica must fetch the records.
    """


def position_of(replica: Replica) -> FetchPosition:
    """Return the position for the replica's next Fetch request."""
    log = replica.log
    return FetchPosition(log.log_end_offset, log.latest_epoch, replica.leader_epoch, log.state.durable_start_offset)


def is_still_at(replica: Replica, asked: FetchPosition) -> bool:
    """Whether a response to a fetch at the position `asked` (leader epoch and offset) still applies to the replica."""
    here = position_of(replica)
    return (
        not replica.leads
        and not replica.log.state.is_truncating
        and here.leader_epoch == asked.leader_epoch
        and here.offset == asked.offset
        and here.last_fetched_epoch == asked.last_fetched_epoch
    )


def take(replica: Replica, asked: FetchPosition, answer: PartitionAnswer) -> TruncateTo | RestartAt | None:
    """Append the records of a response to a replica; the caller has checked with `is_still_at` that the response still
    applies. If the log must be truncated first, returns the truncation that the caller must run (it waits for the
    disk); otherwise None.

    DeleteRecords can put the leader's log start into the middle of a batch. A log that restarts there gets this batch,
    whose first offset is lower. It therefore restarts once more, at that offset, and gets the first batch of the same
    response (`append_after_restart`): the leader refuses to read from an offset below its log start. The following
    batches are fetched again, so that a restart that waits for the disk holds no more than one batch in memory, and so
    that a damaged later batch does not cause a restart. A batch of a later leader epoch causes no restart either,
    because the log would skip the batch (KAFKA-18723).

    Raises the leader's error as KafkaError, or an error of Replica.append_as_follower. OFFSET_OUT_OF_RANGE is raised
    only if the response has no log start offset at which the log could restart.
    """
    log = replica.log
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and log.log_end_offset < answer.log_start_offset:
        return RestartAt(answer.log_start_offset)
    if answer.error_code:
        raise KafkaError(ErrorCode.of(answer.error_code))
    diverging = answer.diverging_epoch
    if diverging is not None:
        end = truncation_offset(log.leader_epochs, log.log_end_offset, diverging.epoch, diverging.end_offset)
        return TruncateTo(end)
    if answer.records and log.log_start_offset == log.log_end_offset:
        first = _first_batch(answer.records)
        if (
            first is not None
            and first.base_offset < log.log_end_offset <= first.last_offset
            and first.partition_leader_epoch <= asked.leader_epoch
        ):
            return RestartAt(first.base_offset, asked.leader_epoch, _with_records(answer, bytes(first.view)))
    replica.append_as_follower(
        memoryview(answer.records or b""),
        leader_epoch=asked.leader_epoch,
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
    )
    return None


def _first_batch(records: Buffer) -> RecordBatch | None:
    """Return the first batch of the records; None if it is incomplete or damaged, which an append reports."""
    try:
        first = RecordBatch(records)
    except CorruptBatch:
        return None
    return first if first.crc_is_valid() else None


def _with_records(answer: PartitionAnswer, records: bytes) -> PartitionAnswer:
    changed = copy(answer)
    changed.records = records
    return changed


def append_after_restart(replica: Replica, restarted: RestartAt) -> None:
    """Append the first batch of the response for which the log has restarted, unless the replica follows another leader
    epoch now. Raises the errors of Replica.append_as_follower.
    """
    answer = restarted.answer
    if (
        answer is not None
        and replica.leader_epoch == restarted.leader_epoch
        and replica.log.log_end_offset == restarted.offset
    ):
        replica.append_as_follower(
            memoryview(answer.records or b""),
            leader_epoch=restarted.leader_epoch,
            high_watermark=answer.high_watermark,
            log_start_offset=answer.log_start_offset,
        )


def cut(replica: Replica, wanted: TruncateTo | RestartAt) -> None:
    """Truncate or restart the log of a follower; this waits for the disk. Raises KAFKA_STORAGE_ERROR."""
    if isinstance(wanted, TruncateTo):
        replica.log.trimmer.truncate_to(wanted.offset)
    else:
        replica.log.trimmer.truncate_fully_and_start_at(wanted.offset)
