"""ListOffsets (2), v1-11: the offset for a timestamp, or for a special timestamp (T12).

Special timestamps: -1 latest (the last stable offset for read_committed, S50), -2 earliest, -3 the record with the
largest timestamp (v7), -4 earliest local (v8; all our data is local), -5 latest tiered (v9) and -6 earliest pending
upload (v11): tiered storage is not supported, so both return no offset. If a request names a partition twice, the
partition fails with INVALID_REQUEST, as in Kafka, because each search for a timestamp reads a batch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.answers import Answer
from oncelog_broker.runtime.steps import Steps, results_dropped
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.records.services import RecordContext
from oncelog_broker.server.request.duplicate_names import counted
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

TopicResponse = ListOffsetsResponse.ListOffsetsTopicResponse
PartitionResponse = TopicResponse.ListOffsetsPartitionResponse

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

FIRST_VERSION: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""Maps a special timestamp to the first version of ListOffsets that may request it."""
FIRST_OFFSET_NOT_AVAILABLE_VERSION: Final = 5


class FoundOffset(NamedTuple):
    """An offset with the timestamp and leader epoch of its record; -1 for unknown values."""

    offset: int
    timestamp: int
    leader_epoch: int


NOTHING_FOUND: Final = FoundOffset(-1, -1, -1)


def handle(request: ListOffsetsRequest, context: RecordContext) -> Answer[ListOffsetsResponse]:
    return context.in_slices(_answer(request, context))


def _answer(request: ListOffsetsRequest, context: RecordContext) -> Steps[ListOffsetsResponse]:
    named = yield from counted(
        (topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions
    )
    topics = []
    for topic in request.topics:
        answers = []
        may = context.may(rules.LIST_OFFSETS, topic.name)
        yield None
        for wanted in topic.partitions:
            try:
                if not may:
                    raise KafkaError(rules.LIST_OFFSETS.refused)
                if named[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partition = context.services.replicas.leader(topic.name, wanted.partition_index)
                partition.check_leader_epoch(wanted.current_leader_epoch)
                found = yield from find(partition, wanted.timestamp, request.isolation_level, context.version)
                answer = PartitionResponse(
                    partition_index=wanted.partition_index,
                    error_code=ErrorCode.NONE,
                    timestamp=found.timestamp,
                    offset=found.offset,
                    leader_epoch=found.leader_epoch,
                )
            except KafkaError as error:
                answer = PartitionResponse(partition_index=wanted.partition_index, error_code=error.code)
            answers.append(answer)
            yield results_dropped
        topics.append(TopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


def find(partition: Partition, timestamp: int, isolation_level: int, version: int) -> Steps[FoundOffset]:
    """Find the offset for `timestamp` in `partition`. Raises KafkaError, with UNSUPPORTED_VERSION for an unknown
    special timestamp.
    """
    log = partition.log
    upper_bound = partition.upper_bound(isolation_level)
    if timestamp < 0 and version < FIRST_VERSION.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} in ListOffsets version {version}")
    if timestamp == LATEST:
        _check_high_watermark_caught_up(partition, version)
        return FoundOffset(upper_bound, -1, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
        return FoundOffset(log.log_start_offset, -1, -1 if epoch is None else epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING_FOUND
    if timestamp == MAX_TIMESTAMP:
        _check_high_watermark_caught_up(partition, version)  # the largest timestamp may be above this high watermark
        found = yield from log.reader.max_timestamp_offset(upper_bound=upper_bound)
    else:
        found = yield from log.reader.offset_for_timestamp(timestamp, upper_bound=upper_bound)
    if found is None:
        _check_high_watermark_caught_up(partition, version)
        return NOTHING_FOUND
    return FoundOffset(found.offset, found.timestamp, -1 if found.leader_epoch is None else found.leader_epoch)


def _check_high_watermark_caught_up(partition: Partition, version: int) -> None:
    """Refuse to report the high watermark while it may be below the value that the previous leader reported, because
    otherwise readers would see the high watermark decrease (KIP-207). Raises KafkaError OFFSET_NOT_AVAILABLE, or
    LEADER_NOT_AVAILABLE for clients that do not know OFFSET_NOT_AVAILABLE.
    """
    if not partition.high_watermark_caught_up:
        known = version >= FIRST_OFFSET_NOT_AVAILABLE_VERSION
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)
