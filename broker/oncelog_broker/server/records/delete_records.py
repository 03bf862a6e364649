"""DeleteRecords (21), v0-2: make the records below an offset unreadable by moving the log start offset.

Offset -1 means the high watermark. Segments that lie entirely below the new start are deleted. The new log start offset
is on disk before the response is sent, so that deleted records do not reappear after a crash. Deleted records do not
reappear after an election either: the response waits up to timeout_ms for all in-sync replicas, and contains the lowest
log start offset among them. (Kafka waits for all live replicas; here a replica outside the ISR may join only after it
has deleted the same records.)

A new leader returns OFFSET_NOT_AVAILABLE, which clients retry, while its high watermark may be below the previous
leader's: an offset above the high watermark may belong to an acknowledged record, and offset -1 would leave
acknowledged records in place. (Kafka returns OFFSET_OUT_OF_RANGE, or deletes fewer records.)
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from oncelog_broker.metadata.topic_names import is_internal
from oncelog_broker.replication.partition import Partition
from oncelog_broker.replication.purgatory import no_longer_than
from oncelog_broker.runtime.answers import Answer, all_of, then
from oncelog_broker.runtime.steps import LightJob, Steps
from oncelog_broker.security.authorizer import rules
from oncelog_broker.server.records.services import RecordContext
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse

logger = logging.getLogger(__name__)

TopicResult = DeleteRecordsResponse.DeleteRecordsTopicResult
PartitionResult = TopicResult.DeleteRecordsPartitionResult

HIGH_WATERMARK: Final = -1


class Deleted(NamedTuple):
    """The deletion of records in one partition, after this broker has deleted the records in its own log."""

    result: PartitionResult
    partition: Partition
    offset: int
    """All records before this offset are to be deleted."""


def handle(request: DeleteRecordsRequest, context: RecordContext) -> Answer[DeleteRecordsResponse]:
    delete = _Delete(request, context)
    return then(context.services.slices.run(delete.all_then_note(), must_finish=True), delete.everywhere)


class _Delete:
    """The progress of one DeleteRecords request."""

    __slots__ = ("_context", "_deleted", "_deleted_here", "_request")

    def __init__(self, request: DeleteRecordsRequest, context: RecordContext) -> None:
        self._request = request
        self._context = context
        self._deleted_here: list[Deleted] = []
        self._deleted: list[Deleted] = []
        """The deletions in partitions that have other replicas."""

    def all_then_note(self) -> Steps[DeleteRecordsResponse]:
        """Delete the records in this broker's logs, and write the new log start offsets to disk."""
        topics = []
        for topic in self._request.topics:
            results = []
            may = self._context.may(rules.DELETE_RECORDS, topic.name)
            for wanted in topic.partitions:
                if not may:
                    results.append(_failed(wanted.partition_index, rules.DELETE_RECORDS.refused))
                    yield None
                    continue
                results.append(self._delete(topic.name, wanted.partition_index, wanted.offset))
                yield None
            topics.append(TopicResult(name=topic.name, partitions=results))
        try:
            yield LightJob(self._context.services.logs.checkpoint_log_start_offsets)
        except OSError as error:
            logger.error("log start offsets could not be written to the checkpoint", extra={"reason": error})
        for result, partition, _ in self._deleted_here:
            # Respond with an error: the records are deleted in memory, but might be readable again after a crash,
            # because the new log start offset is not on disk. Set errors only for the partitions on failed disks,
            # because other disks may have succeeded.
            if partition.log.state.durable_start_offset < result.low_watermark:
                result.error_code = result.error_code or ErrorCode.KAFKA_STORAGE_ERROR
        return DeleteRecordsResponse(topics=topics)

    def _delete(self, topic: str, index: int, offset: int) -> PartitionResult:
        result = _failed(index, ErrorCode.NONE)
        try:
            partition = self._context.services.replicas.leader(topic, index)
            target = _delete(topic, partition, offset)
        except KafkaError as error:
            result.error_code = error.code
            return result
        result.low_watermark = partition.log.log_start_offset
        deleted = Deleted(result, partition, target)
        self._deleted_here.append(deleted)
        if not partition.is_alone:
            self._deleted.append(deleted)
        return result

    def everywhere(self, response: DeleteRecordsResponse) -> Answer[DeleteRecordsResponse]:
        """Return the response when the other replicas have deleted the same records."""
        deleted = [each for each in self._deleted if not each.result.error_code]
        if not deleted:
            return response
        services, seconds = self._context.services, max(0, self._request.timeout_ms) / 1000
        answers = [
            no_longer_than(seconds, each.partition.deleted_everywhere(each.offset), services.deadlines)
            for each in deleted
        ]

        def note(codes: list[ErrorCode]) -> DeleteRecordsResponse:
            for (result, partition, _), code in zip(deleted, codes, strict=True):
                result.error_code = code
                if not partition.is_resigned:
                    result.low_watermark = partition.low_watermark
            return response

        return then(all_of(answers), note)


def _failed(index: int, code: ErrorCode) -> PartitionResult:
    return PartitionResult(partition_index=index, low_watermark=-1, error_code=code)


def _delete(topic: str, partition: Partition, offset: int) -> int:
    """Delete the records before an offset; returns this offset, with -1 resolved to the high watermark. Raises
    KafkaError."""
    if is_internal(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own: its records are not deleted")
    if "delete" not in partition.log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} has cleanup.policy=compact: records are not deleted")
    partition.log.state.check_online()  # the high watermark of a failed log is old: another broker may lead already
    target = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if (offset == HIGH_WATERMARK or target > partition.high_watermark) and not partition.high_watermark_caught_up:
        # Return a retriable error, because the previous leader may have acknowledged records above this high watermark
        # (as in KIP-207).
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    if not 0 <= target <= partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the high watermark {partition.high_watermark}"
        )
    if target > partition.log.log_start_offset:
        partition.delete_records_before(target)
    return target
